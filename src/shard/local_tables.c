/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/local_tables.h"

#include "embed/directory.h"
#include "shard/sequence.h"
#include "shard/vectors.h"

#include <string.h>

/* The kind of a table, by the weights of its ids. TRS_LOCAL_ROWS: the rows are not pooled. */
typedef enum { TRS_LOCAL_PLAIN, TRS_LOCAL_WEIGHTED, TRS_LOCAL_POSITIONS, TRS_LOCAL_ROWS } TrsLocalKind;

/*
  Neighbouring tables of one kind, which one lookup handles. Each table whose rows are not pooled
  has a group of its own.
*/
typedef struct {
  TrsLocalKind kind;
  int table, n_tables;
  /* index of the first feature among all tables' features, and the number of features */
  int feature, n_features;
  TrsLookup lookup;
} TrsLocalGroup;

struct TrsLocalTablesImpl {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  const TrsTableConfigs *tables;
  const TrsEmbeddingShards *shards;
  int n_groups;
  TrsLocalGroup *group;      /* [n_groups] */
  int64_t *unknown;          /* [features] ids without a row in the last forward */
  TrsDeviceBuffer positions; /* float [N] position of each id in its bag */
  TrsDeviceBuffer rows;      /* float [N, embedding_dim] rows of the current table */
};

static TrsLocalKind kind_of(const TrsTableConfig *table)
{
  if (table->pooling == TRS_POOLING_NONE) return TRS_LOCAL_ROWS;
  if (table->max_feature_lengths) return TRS_LOCAL_POSITIONS;
  return table->is_weighted ? TRS_LOCAL_WEIGHTED : TRS_LOCAL_PLAIN;
}

static void find_groups(TrsLocalTables l)
{
  for (int t = 0, f = 0; t < l->tables->n; f += l->tables->table[t++].n_features) {
    const TrsLocalKind kind = kind_of(&l->tables->table[t]);

    if (l->n_groups == 0 || kind == TRS_LOCAL_ROWS || l->group[l->n_groups - 1].kind != kind)
      l->group[l->n_groups++] = (TrsLocalGroup){.kind = kind, .table = t, .feature = f};
    l->group[l->n_groups - 1].n_tables++;
    l->group[l->n_groups - 1].n_features += l->tables->table[t].n_features;
  }
}

static PetscErrorCode create_lookup(TrsLocalTables l, const TrsEmbeddingShards *shards,
                                    const int64_t *columns, const TrsPositionWeight *position,
                                    TrsLocalGroup *group)
{
  TrsLookupFeature *features;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)group->n_features, &features));
  for (int t = group->table, f = 0; t < group->table + group->n_tables; t++)
    for (int k = 0; k < l->tables->table[t].n_features; k++, f++)
      features[f] = (TrsLookupFeature){.shard = TrsEmbeddingShardsFind(shards, t, 0),
                                       .mean = (PetscBool)(l->tables->table[t].pooling == TRS_POOLING_MEAN),
                                       .out_column = columns[group->feature + f],
                                       .position = position[group->feature + f]};
  ierr = TrsLookupCreate(l->compute, shards, group->n_features, features, &group->lookup);
  PetscCall(PetscFree(features));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLocalTablesCreate(const TrsComputeOps *compute, const TrsEmbeddingShards *shards,
                                    const int64_t *columns, const TrsPositionWeight *position,
                                    TrsLocalTables *local)
{
  TrsLocalTables l;
  int n_features = 0;

  PetscFunctionBegin;
  PetscCall(PetscNew(&l));
  *local = l; /* return it now, so that Destroy frees it after an error */
  l->device = shards->device;
  l->compute = compute;
  l->tables = shards->tables;
  l->shards = shards;
  for (int t = 0; t < l->tables->n; t++) n_features += l->tables->table[t].n_features;
  PetscCall(PetscCalloc2((size_t)l->tables->n, &l->group, (size_t)n_features, &l->unknown));
  find_groups(l);
  for (int g = 0; g < l->n_groups; g++) PetscCall(create_lookup(l, shards, columns, position, &l->group[g]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLocalTablesDestroy(TrsLocalTables *local)
{
  TrsLocalTables l = *local;

  PetscFunctionBegin;
  if (!l) PetscFunctionReturn(PETSC_SUCCESS);
  for (int g = 0; g < l->n_groups; g++) PetscCall(TrsLookupDestroy(&l->group[g].lookup));
  PetscCall(TrsDeviceBufferFree(l->device, &l->positions));
  PetscCall(TrsDeviceBufferFree(l->device, &l->rows));
  PetscCall(PetscFree2(l->group, l->unknown));
  PetscCall(PetscFree(*local));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Use each id's position in its bag as its weight. */
static PetscErrorCode set_positions(TrsLocalTables l, TrsKjt *ids)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(l->device, &l->positions, ids->jagged.n_values * (int64_t)sizeof(float)));
  ids->jagged.weights = (float *)l->positions.data;
  PetscCall(l->compute->positions(NULL, ids->jagged.n_bags, ids->jagged.offsets, ids->jagged.weights));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Look up a row for each id of a table, and turn the rows into the vectors that the model uses. The
  row of id i is stored at row i of the buffer. Memory pages for the ids of other features are
  therefore not touched.
*/
static PetscErrorCode pool_rows(TrsLocalTables l, const TrsLocalGroup *group, const TrsKjt *batch,
                                const TrsKjt *ids, const TrsPooledMatrix *pooled)
{
  const TrsTableConfig *table = &l->tables->table[group->table];
  const int64_t dim = table->embedding_dim;
  const float *rows;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(l->device, &l->rows, ids->jagged.n_values * dim * (int64_t)sizeof(float)));
  rows = (const float *)l->rows.data;
  PetscCall(TrsLookupForwardRows(group->lookup, NULL, ids, (float *)l->rows.data, dim));
  for (int f = group->feature; f < group->feature + group->n_features; f++) {
    const TrsVectors vectors = TrsVectorsOf(table, f - group->feature, f, batch, pooled);
    const int64_t *offsets = batch->jagged.offsets + f * batch->batch;
    const TrsSequenceBags bags = {.pooling = TrsSequencePoolingOf(table, f - group->feature),
                                  .batch = batch->batch,
                                  .dim = dim,
                                  .row_stride = dim,
                                  .places = table->sequence_length,
                                  .place_stride = dim,
                                  .offsets = offsets,
                                  .ids = TrsTableKeepsIds(table) ? NULL : batch->jagged.values};

    if (!TrsFeatureIsSequenceLayer(table, f - group->feature))
      PetscCall(l->compute->sequence_forward(NULL, &bags, rows, vectors.data, vectors.stride));
    else if (vectors.n > 0)
      memcpy(vectors.data, rows + offsets[0] * dim, (size_t)(vectors.n * dim) * sizeof(float));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Count the ids of a group's features that got the row for ids without one. ids: as rows of the
  tables.
*/
static void count_unknown(TrsLocalTables l, const TrsLocalGroup *group, const TrsKjt *ids)
{
  int f = 0;

  for (int t = group->table; t < group->table + group->n_tables; t++) {
    const TrsDirectory *d = TrsDirectoryOf(l->shards, TrsEmbeddingShardsFind(l->shards, t, 0));

    for (int k = 0; k < l->tables->table[t].n_features; k++, f++) {
      int64_t n = 0;

      for (int64_t i = ids->jagged.offsets[f * ids->batch];
           d && i < ids->jagged.offsets[(f + 1) * ids->batch]; i++)
        n += ids->jagged.values[i] % d->rule.rows == d->ops->unknown_row(d->rule.rows);
      l->unknown[group->feature + f] = n;
    }
  }
}

const int64_t *TrsLocalTablesUnknown(TrsLocalTables l)
{
  return l->unknown;
}

PetscErrorCode TrsLocalTablesForward(TrsLocalTables l, const TrsKjt *batch, const TrsPooledMatrix *pooled)
{
  PetscFunctionBegin;
  for (int g = 0; g < l->n_groups; g++) {
    const TrsLocalGroup *group = &l->group[g];
    TrsKjt ids;

    PetscCall(TrsKjtView(batch, group->feature, group->n_features, &ids));
    if (group->kind != TRS_LOCAL_WEIGHTED) ids.jagged.weights = NULL;
    if (group->kind == TRS_LOCAL_POSITIONS) PetscCall(set_positions(l, &ids));
    PetscCall(TrsLookupTake(group->lookup, NULL, 0, PETSC_FALSE, NULL, &ids));
    count_unknown(l, group, &ids);
    if (group->kind == TRS_LOCAL_ROWS)
      PetscCall(pool_rows(l, group, batch, &ids, pooled));
    else
      PetscCall(TrsLookupForward(group->lookup, NULL, &ids, pooled->rows));
  }
  PetscCall(TrsVectorsRound(l->compute, l->tables, batch, NULL, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}
