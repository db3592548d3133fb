/* SPDX-License-Identifier: BSD-3-Clause */
#include "quant/quantised_tables.h"

#include "compute/quant.h"

#include <inttypes.h>

static const TrsOptionSpec specs[] = {
    {"-quant_checkpoint", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "file to which -task predict writes its quantised tables and the dense layers; -init_from reads it"},
};
const TrsOptionGroup trs_quant_options = TRS_OPTION_GROUP("Quantised tables", specs);

static const char zeros[TRS_TBE_ROW_ALIGNMENT];

/* --- data types --- */

static PetscErrorCode check_stored(const char *path, const TrsTableConfig *config,
                                   const TrsStoredTable *stored)
{
  const int64_t cols = stored->is_quantised
                           ? TrsQuantRowBytes(stored->dtype, TRS_ROWS_TBE, config->embedding_dim)
                           : config->embedding_dim;
  const char *suffix = stored->is_quantised ? "_quantised" : "";

  PetscFunctionBegin;
  PetscCheck(!stored->is_quantised || stored->row_alignment == TRS_TBE_ROW_ALIGNMENT, PETSC_COMM_SELF,
             TRS_ERR_DATA,
             "%s: attribute row_alignment of /embedding/%s/weight%s is %" PRId64 ", expected %d", path,
             config->name, suffix, stored->row_alignment, TRS_TBE_ROW_ALIGNMENT);
  PetscCheck(!stored->is_quantised || stored->embedding_dim == config->embedding_dim, PETSC_COMM_SELF,
             TRS_ERR_DATA,
             "%s: attribute embedding_dim of /embedding/%s/weight%s is %" PRId64 ", the model wants %d", path,
             config->name, suffix, stored->embedding_dim, config->embedding_dim);
  PetscCheck((stored->rows == config->num_embeddings || config->id_map.kind == TRS_ID_MAP_DYNAMIC) &&
                 stored->cols == cols,
             PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /embedding/%s/weight%s is %s [%" PRId64 ", %" PRId64 "], the model wants [%" PRId64
             ", %" PRId64 "]%s",
             path, config->name, suffix, TrsDTypeName(stored->dtype), stored->rows, stored->cols,
             config->num_embeddings, cols, stored->is_quantised ? ": rows and their bytes" : "");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode choose_type(TrsOptions options, const char *path, const TrsStoredTable *stored,
                                  TrsTableConfig *config)
{
  const char *name;
  int data_type;
  PetscBool set;

  PetscFunctionBegin;
  PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(config), "data_type", &name));
  PetscCall(TrsOptionsGetEnum(options, name, &data_type, &set));
  if (set && stored->is_quantised && (TrsDType)data_type != stored->dtype)
    PetscCall(TrsOptionError(options, name,
                             "table \"%s\" is %s in %s, and rounding it again to %s would lose twice: start "
                             "from the checkpoint of the training",
                             config->name, TrsDTypeName(stored->dtype), path,
                             TrsDTypeName((TrsDType)data_type)));
  config->data_type = set ? (TrsDType)data_type : stored->dtype;
  if (!set) PetscCall(TrsOptionsSettle(options, name, TrsDTypeName(config->data_type)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsQuantTableTypes(MPI_Comm comm, TrsOptions options, const char *path,
                                  TrsTableConfigs *tables, TrsStoredTable *stored)
{
  const char **names, **id_maps;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2((size_t)tables->n, &names, (size_t)tables->n, &id_maps));
  for (int t = 0; t < tables->n; t++) {
    names[t] = tables->table[t].name;
    id_maps[t] = TrsIdMapName(tables->table[t].id_map.kind);
  }
  PetscCall(TrsCheckpointTables(comm, path, tables->n, names, id_maps, stored));
  PetscCall(PetscFree2(names, id_maps));
  for (int t = 0; t < tables->n; t++) {
    PetscCall(check_stored(path, &tables->table[t], &stored[t]));
    PetscCall(choose_type(options, path, &stored[t], &tables->table[t]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- plans --- */

PetscErrorCode TrsQuantCheckPlan(const TrsShardingPlan *plan, const TrsTableConfigs *tables,
                                 const char *source)
{
  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *config = &tables->table[t];
    const TrsTablePlan *table = TrsShardingPlanFind(plan, config->name);
    const int bits = TrsDTypeBits(config->data_type);

    PetscCheck(table && TrsKernelIsQuantised(table->compute_kernel), PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: table \"%s\" has compute kernel %s, which is for training: -task predict takes plans of "
               "-plan_sharder quant",
               source, config->name, table ? TrsComputeKernelName(table->compute_kernel) : "none");
    for (int i = 0; i < table->n_shards; i++)
      PetscCheck(table->shard[i].col_offset * bits % 8 == 0, PETSC_COMM_SELF, TRS_ERR_DATA,
                 "%s: table \"%s\", shard %d starts at column %" PRId64
                 ", in the middle of a byte of %s rows",
                 source, config->name, i, table->shard[i].col_offset, TrsDTypeName(config->data_type));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- writing --- */

/*
  Describe a shard of packed values as rectangles of bytes. The first columns' rectangle includes
  the parameters, the last columns' rectangle the padding.
*/
static PetscErrorCode add_packed_parts(const TrsEmbeddingShards *shards, int i, int64_t row_bytes,
                                       TrsStateTensor *tensor)
{
  const TrsTbeTable *t = &shards->shard[i].tbe;
  const int bits = TrsDTypeBits(t->dtype);
  const int64_t parameters = TRS_TBE_PARAMETER_BYTES, value_bytes = ((int64_t)t->dim * bits + 7) / 8,
                first_value = parameters + t->col_offset * bits / 8, end = first_value + value_bytes;
  char *rows = t->weight;
  union {
    const char *to_read;
    void *data;
  } padding = {.to_read = zeros};

  TrsStatePart part = {.data = rows, .cols = row_bytes, .stride = t->stride};

  PetscFunctionBegin;
  if (t->dim != t->table_dim && t->col_offset == 0) part.cols = end;
  if (t->dim != t->table_dim && t->col_offset > 0)
    part = (TrsStatePart){
        .data = rows + parameters, .col_offset = first_value, .cols = value_bytes, .stride = t->stride};
  PetscCall(TrsEmbeddingShardAddPart(shards, i, &part, tensor));
  part = (TrsStatePart){.data = padding.data, .col_offset = end, .cols = row_bytes - end};
  if (t->col_offset && t->col_offset + t->dim == t->table_dim && end < row_bytes)
    PetscCall(TrsEmbeddingShardAddPart(shards, i, &part, tensor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsQuantAddState(const TrsEmbeddingShards *shards, TrsState *state)
{
  PetscFunctionBegin;
  for (int t = 0; t < shards->tables->n; t++) {
    const TrsTableConfig *config = &shards->tables->table[t];
    const PetscBool packed = TrsQuantIsPacked(config->data_type);
    const int64_t cols = packed ? TrsQuantRowBytes(config->data_type, TRS_ROWS_TBE, config->embedding_dim)
                                : config->embedding_dim;
    char path[PETSC_MAX_PATH_LEN];
    TrsStateTensor *tensor;

    PetscCall(
        PetscSNPrintf(path, sizeof(path), "embedding/%s/weight%s", config->name, packed ? "_quantised" : ""));
    PetscCall(TrsEmbeddingShardsAddRows(shards, t, path, packed ? TRS_UINT8 : config->data_type, cols, state,
                                        &tensor));
    if (packed) {
      tensor->attribute[0] = (TrsStateAttribute){"data_type", TrsDTypeName(config->data_type), 0};
      tensor->attribute[1] = (TrsStateAttribute){"embedding_dim", NULL, config->embedding_dim};
      tensor->attribute[2] = (TrsStateAttribute){"row_alignment", NULL, TRS_TBE_ROW_ALIGNMENT};
      tensor->n_attributes = 3;
    }
    for (int i = 0; i < shards->n; i++) {
      const TrsTbeTable *shard = &shards->shard[i].tbe;
      const TrsStatePart part = {.col_offset = shard->col_offset,
                                 .cols = shard->dim,
                                 .data = shard->weight,
                                 .stride = shard->stride};

      if (shards->shard[i].table != t || shard->rows == 0) continue;
      if (packed)
        PetscCall(add_packed_parts(shards, i, cols, tensor));
      else
        PetscCall(TrsEmbeddingShardAddPart(shards, i, &part, tensor));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsQuantFloatBytes(const TrsEmbeddingShards *shards)
{
  int64_t bytes = 0;

  for (int i = 0; i < shards->n; i++)
    bytes += shards->shard[i].tbe.rows * shards->shard[i].tbe.dim * (int64_t)sizeof(float);
  return bytes;
}
