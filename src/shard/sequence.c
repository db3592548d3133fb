/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/sequence.h"

/* Describe the sum of the gradients of all pieces, as tables and features for a kernel. */
static PetscErrorCode describe_adds(TrsSharding sharding, TrsSequence *sequence)
{
  const int *table_feature = sharding->route.table_feature;
  size_t n = 0, at = 0;

  PetscFunctionBegin;
  sequence->by_table = (PetscBool)(sequence->n_pieces == sharding->n_tables);
  for (int p = 0; p < sequence->n_pieces; p++) {
    const int i = sequence->piece[p].table;

    n += (size_t)(table_feature[i + 1] - table_feature[i]);
    sequence->by_table = (PetscBool)(sequence->by_table && i == p);
  }
  PetscCall(PetscCalloc3((size_t)sequence->n_pieces, &sequence->add_table, n, &sequence->add_feature, n,
                         &sequence->piece_feature));
  for (int p = 0; p < sequence->n_pieces; p++) {
    const TrsSequencePiece *piece = &sequence->piece[p];

    sequence->add_table[p] = (TrsTbeTable){.stride = sequence->dim,
                                           .dim = (int32_t)piece->columns,
                                           .dtype = TRS_FP32,
                                           .table_dim = piece->columns};
    for (int k = table_feature[piece->table]; k < table_feature[piece->table + 1]; k++) {
      sequence->add_feature[at] = (TrsTbeFeature){.table = p};
      sequence->piece_feature[at++] = k;
    }
  }
  sequence->add = (TrsTbe){.n_tables = sequence->n_pieces,
                           .n_features = (int)n,
                           .table = sequence->add_table,
                           .feature = sequence->add_feature};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceCreate(TrsSharding sharding, PetscBool dedup, TrsSequence *sequence)
{
  const TrsComputeOps *compute = sharding->context->compute;
  const TrsRoute *route = &sharding->route;
  const size_t n_tables = (size_t)sharding->n_tables;

  PetscFunctionBegin;
  *sequence = (TrsSequence){.dedup = dedup};
  PetscCall(PetscMalloc1((size_t)route->n_entries, &sequence->piece));
  for (int e = 0; e < route->n_entries; e++) {
    const TrsRouteEntry *entry = &route->entry[e];
    /* count a block only once, at its first feature */
    if (route->place[e] != route->table_feature[entry->table]) continue;
    sequence->piece[sequence->n_pieces++] = (TrsSequencePiece){
        .table = entry->table, .columns = entry->columns, .column = entry->column};
    sequence->dim = PetscMax(sequence->dim, entry->columns);
  }
  for (int p = 0; p < sequence->n_pieces; p++) sequence->padded |= sequence->piece[p].columns < sequence->dim;
  for (int s = 0; s < TRS_SHARD_SLOTS; s++)
    PetscCall(PetscCalloc4(n_tables + 1, &sequence->batch[s].begin, n_tables + 1,
                           &sequence->batch[s].unique_begin, (size_t)route->n_features + 1,
                           &sequence->batch[s].id_begin, (size_t)sequence->n_pieces,
                           &sequence->batch[s].where));
  PetscCall(compute->workspace_create(&sequence->unique_workspace));
  PetscCall(compute->workspace_create(&sequence->add_workspace));
  PetscCall(compute->workspace_create(&sequence->sort_workspace));
  PetscCall(describe_adds(sharding, sequence));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceDestroy(TrsSharding sharding, TrsSequence *sequence)
{
  const TrsDeviceOps *device = sharding->context->device;
  const TrsComputeOps *compute = sharding->context->compute;

  PetscFunctionBegin;
  for (int s = 0; s < TRS_SHARD_SLOTS; s++) {
    TrsSequenceBatch *batch = &sequence->batch[s];
    PetscCall(TrsKjtFree(device, &batch->group));
    PetscCall(TrsKjtFree(device, &batch->unique));
    PetscCall(TrsDeviceBufferFree(device, &batch->reverse));
    PetscCall(TrsDeviceBufferFree(device, &batch->places));
    PetscCall(TrsDeviceBufferFree(device, &batch->row));
    PetscCall(TrsPinnedBufferFree(device, &batch->lengths));
    PetscCall(TrsKjtFree(device, &batch->pieces));
    PetscCall(TrsLookupOccurrencesDestroy(compute, &batch->occurrences));
    PetscCall(PetscFree4(batch->begin, batch->unique_begin, batch->id_begin, batch->where));
  }
  PetscCall(TrsDeviceBufferFree(device, &sequence->by_id));
  PetscCall(TrsDeviceBufferFree(sharding->context->device, &sequence->each));
  PetscCall(TrsPinnedBufferFree(sharding->context->device, &sequence->host_each));
  PetscCall(compute->workspace_destroy(&sequence->unique_workspace));
  PetscCall(compute->workspace_destroy(&sequence->add_workspace));
  PetscCall(compute->workspace_destroy(&sequence->sort_workspace));
  PetscCall(PetscFree3(sequence->add_table, sequence->add_feature, sequence->piece_feature));
  PetscCall(PetscFree(sequence->piece));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Distribute n ids over the B bags of several features. Each bag gets n / (features * B) ids, and
  the first bags get one more. The caller must set the first entry of id_begin [features + 1].
*/
static void spread(int64_t n, int features, int64_t B, int32_t *lengths, int64_t *id_begin)
{
  const int64_t m = features * B;

  for (int f = 0; f < features; f++) {
    id_begin[f + 1] = id_begin[f];
    for (int64_t b = f * B; b < (f + 1) * B; b++) {
      lengths[b] = (int32_t)(n / m + (b < n % m));
      id_begin[f + 1] += lengths[b];
    }
  }
}

/*
  Put each table's distinct ids into the bags of its features. An exchange needs bags, but the
  distribution over bags does not matter. A table's distinct ids are adjacent, so that they are
  looked up in the order of rows.
*/
static PetscErrorCode make_unique(TrsSharding sharding, const TrsSequence *sequence, TrsSequenceBatch *batch,
                                  TrsStream stream)
{
  const TrsDeviceOps *device = sharding->context->device;
  const TrsComputeOps *compute = sharding->context->compute;
  const int64_t B = batch->group.batch, bags = sharding->route.n_features * B;
  TrsKjt *unique = &batch->unique;
  int32_t *lengths;

  PetscFunctionBegin;
  PetscCall(TrsKjtReserve(device, unique, sharding->route.n_features, B, batch->group.jagged.n_values,
                          PETSC_FALSE));
  PetscCall(TrsDeviceBufferReserve(device, &batch->reverse,
                                   batch->group.jagged.n_values * (int64_t)sizeof(int64_t)));
  PetscCall(TrsPinnedBufferReserve(device, &batch->lengths, bags * (int64_t)sizeof(*lengths)));
  lengths = (int32_t *)batch->lengths.data;
  PetscCall(compute->unique(stream, sequence->unique_workspace, sharding->n_tables, batch->begin,
                            batch->group.jagged.values, batch->unique_begin, unique->jagged.values,
                            (int64_t *)batch->reverse.data));
  for (int i = 0; i < sharding->n_tables; i++) {
    const int first = sharding->route.table_feature[i];
    spread(batch->unique_begin[i + 1] - batch->unique_begin[i], sharding->route.table_feature[i + 1] - first,
           B, lengths + first * B, batch->id_begin + first);
  }
  unique->jagged.n_values = batch->unique_begin[sharding->n_tables];
  unique->id_begin = batch->id_begin;
  PetscCall(device->copy(unique->jagged.lengths, lengths, bags * (int64_t)sizeof(*lengths), stream));
  PetscCall(TrsKjtOffsets(compute, stream, unique));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequencePrepare(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                                  TrsStream stream, const TrsKjt **to_send)
{
  const TrsShardingContext *context = sharding->context;
  TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, sequence, slot);

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, slot->batch,
                          sharding->route.n_features, sharding->route.group_feature, &batch->group));
  for (int i = 0; i <= sharding->n_tables; i++)
    batch->begin[i] = batch->group.id_begin[sharding->route.table_feature[i]];
  if (sequence->dedup) PetscCall(make_unique(sharding, sequence, batch, stream));
  if (sequence->dedup && !sequence->by_table) {
    TrsKjt reverse = batch->group; /* owns no memory */

    reverse.jagged.values = (int64_t *)batch->reverse.data;
    PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, &reverse,
                            sequence->add.n_features, sequence->piece_feature, &batch->pieces));
  }
  *to_send = sequence->dedup ? &batch->unique : &batch->group;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsSequenceIds(const TrsSequence *sequence, const TrsSequenceBatch *batch, int i)
{
  const int64_t *begin = sequence->dedup ? batch->unique_begin : batch->begin;
  return begin[i + 1] - begin[i];
}

/*
  The pooling that the kernels apply. If a layer of the model pools the rows, each row is copied
  like a bag with one id.
*/
#define KERNEL_OF_LAYER(KIND, ...) [TRS_SEQUENCE_POOLING_##KIND] = TRS_SEQUENCE_CONCAT,
static const TrsSequencePooling poolings[] = {[TRS_SEQUENCE_POOLING_MEAN] = TRS_SEQUENCE_MEAN,
                                              [TRS_SEQUENCE_POOLING_MAX] = TRS_SEQUENCE_MAX,
                                              [TRS_SEQUENCE_POOLING_CONCAT] = TRS_SEQUENCE_CONCAT,
                                              TRS_SEQUENCE_LAYERS(KERNEL_OF_LAYER)};

TrsSequencePooling TrsSequencePoolingOf(const TrsTableConfig *table, int k)
{
  if (TrsTableIsSequenceLayer(table) && !TrsFeatureIsSequenceLayer(table, k)) return TRS_SEQUENCE_MEAN;
  return poolings[table->sequence_pooling];
}

/* Write the offsets of n bags that each have one id. */
static PetscErrorCode count_each(const TrsDeviceOps *device, TrsStream stream, TrsSequence *sequence,
                                 int64_t n)
{
  int64_t *each, bytes;

  PetscFunctionBegin;
  if (n < sequence->n_each) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferReserve(device, &sequence->each, (n + 1) * (int64_t)sizeof(*each)));
  sequence->n_each = sequence->each.capacity_bytes / (int64_t)sizeof(*each);
  bytes = sequence->n_each * (int64_t)sizeof(*each);
  if (!device->host_memory) PetscCall(TrsPinnedBufferReserve(device, &sequence->host_each, bytes));
  each = (int64_t *)(device->host_memory ? sequence->each.data : sequence->host_each.data);
  for (int64_t i = 0; i < sequence->n_each; i++) each[i] = i;
  if (!device->host_memory) {
    PetscCall(device->copy(sequence->each.data, each, bytes, stream));
    /* wait, because other streams also read the offsets */
    PetscCall(device->stream_synchronize(stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The bags of a feature in a piece, and the address of their vectors or gradients. */
typedef struct {
  TrsSequenceBags bags;
  float *data;
  int64_t stride;
} TrsPieceBags;

/* Describe the bags and vectors of the group's k-th feature in the columns of a piece. */
static PetscErrorCode bags_of(TrsSharding sharding, TrsStream stream, TrsSequence *sequence,
                              const TrsSequenceBatch *batch, int p, int k, const TrsPooledMatrix *matrix,
                              TrsPieceBags *found)
{
  const TrsSequencePiece *piece = &sequence->piece[p];
  const TrsTableConfig *config = TrsShardingTableConfig(sharding, piece->table);
  const TrsKjt *group = &batch->group;
  const int f = sharding->route.group_feature[k], own = k - sharding->route.table_feature[piece->table];

  PetscFunctionBegin;
  *found = (TrsPieceBags){.bags = {.pooling = TrsSequencePoolingOf(config, own),
                                   .batch = group->batch,
                                   .dim = piece->columns,
                                   .row_stride = sequence->dim,
                                   .places = config->sequence_length,
                                   .place_stride = config->embedding_dim,
                                   .offsets = group->jagged.offsets + k * group->batch,
                                   .ids = TrsTableKeepsIds(config) ? NULL : group->jagged.values,
                                   .index = batch->where[p].index,
                                   .shift = batch->where[p].shift},
                          .data = TrsPooledFloats(matrix, matrix->columns[f] + piece->column),
                          .stride = matrix->rows.stride};
  if (!TrsFeatureIsSequenceLayer(config, own)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(count_each(sharding->context->device, stream, sequence, group->id_begin[k + 1]));
  found->bags.batch = group->id_begin[k + 1] - group->id_begin[k];
  found->bags.offsets = (const int64_t *)sequence->each.data + group->id_begin[k];
  found->data = matrix->by_id[f] + piece->column;
  found->stride = config->embedding_dim;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequencePool(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                               TrsStream stream, const float *rows, const TrsPooledMatrix *pooled)
{
  const TrsSequenceBatch *batch = &sequence->batch[slot - sharding->slot];
  TrsPieceBags to;

  PetscFunctionBegin;
  for (int p = 0; p < sequence->n_pieces; p++) {
    const int i = sequence->piece[p].table;

    for (int k = sharding->route.table_feature[i]; k < sharding->route.table_feature[i + 1]; k++) {
      PetscCall(bags_of(sharding, stream, sequence, batch, p, k, pooled, &to));
      PetscCall(sharding->context->compute->sequence_forward(stream, &to.bags, rows, to.data, to.stride));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The bags of all pieces, piece by piece. Each value is the index of the id's row in the piece. */
static TrsTbeInput piece_bags(const TrsSequence *sequence, const TrsSequenceBatch *batch)
{
  const TrsJagged *bags = sequence->by_table ? &batch->group.jagged : &batch->pieces.jagged;
  const void *rows = batch->row.data;

  if (!rows) rows = sequence->by_table ? batch->reverse.data : bags->values;
  return (TrsTbeInput){.batch = batch->group.batch,
                       .offsets = bags->offsets,
                       .values = (const int64_t *)rows,
                       .n_values = bags->n_values};
}

/* Let the pieces' tables refer to their rows in grad_rows. */
static void set_add_tables(TrsSequence *sequence, const TrsSequenceBatch *batch,
                           float *grad_rows) /* NOLINT(readability-non-const-parameter) */
{
  for (int p = 0; p < sequence->n_pieces; p++) {
    sequence->add_table[p].weight = grad_rows + batch->where[p].shift * sequence->dim;
    sequence->add_table[p].rows = batch->where[p].n;
  }
}

PetscErrorCode TrsSequenceSort(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                               TrsStream stream)
{
  const TrsComputeOps *compute = sharding->context->compute;
  TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, sequence, slot);
  const TrsTbeInput input = piece_bags(sequence, batch);
  TrsMemoryKind before;

  PetscFunctionBegin;
  if (!sequence->dedup || !compute->tbe_find_occurrences) PetscFunctionReturn(PETSC_SUCCESS);
  before = TrsMemoryFor(TRS_MEMORY_SCRATCH);
  /* The sort only needs the alignment of the gradients' memory. This memory has the same
     alignment. */
  set_add_tables(sequence, batch, (float *)batch->reverse.data);
  PetscCall(compute->tbe_find_occurrences(stream, sequence->sort_workspace, &sequence->add, &input,
                                          TRS_TBE_BY_ID, &batch->occurrences));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add up the gradients per id into the distinct rows of all pieces, in the order of feature, sample
  and position in the bag. The sum is made as a step of gradient descent from zeros with learning
  rate -1.
*/
static PetscErrorCode add_duplicates(TrsSharding sharding, TrsSequence *sequence,
                                     const TrsSequenceBatch *batch, TrsStream stream, float *grad_rows)
{
  const TrsSparseOptimizerArgs add = {.kind = TRS_OPTIM_SGD, .learning_rate = -1.0F, .step = 1};
  TrsTbeInput input = piece_bags(sequence, batch);

  PetscFunctionBegin;
  set_add_tables(sequence, batch, grad_rows);
  input.occurrences = batch->occurrences;
  PetscCall(sharding->context->compute->tbe_backward_rows(stream, sequence->add_workspace, &sequence->add,
                                                          &input, (const float *)sequence->by_id.data,
                                                          sequence->dim, &add));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSequenceUnpool(TrsSharding sharding, TrsSequence *sequence, const TrsShardingSlot *slot,
                                 TrsStream stream, const float *rows, const TrsPooledMatrix *grad,
                                 int64_t n_rows, float *grad_rows)
{
  const TrsShardingContext *context = sharding->context;
  const TrsSequenceBatch *batch = &sequence->batch[slot - sharding->slot];
  const int64_t row_bytes = sequence->dim * (int64_t)sizeof(float);
  int64_t at_id = 0; /* index of the piece's first gradient per id */
  TrsPieceBags from;

  PetscFunctionBegin;
  if (sequence->dedup || sequence->padded)
    PetscCall(context->device->zero(grad_rows, n_rows * row_bytes, stream));
  if (sequence->dedup)
    PetscCall(TrsDeviceBufferReserve(context->device, &sequence->by_id,
                                     piece_bags(sequence, batch).n_values * row_bytes));
  for (int p = 0; p < sequence->n_pieces; p++) {
    const int i = sequence->piece[p].table;
    float *to = sequence->dedup ? (float *)sequence->by_id.data + (at_id - batch->begin[i]) * sequence->dim
                                : grad_rows;

    for (int k = sharding->route.table_feature[i]; k < sharding->route.table_feature[i + 1]; k++) {
      PetscCall(bags_of(sharding, stream, sequence, batch, p, k, grad, &from));
      PetscCall(context->compute->sequence_backward(stream, &from.bags, rows, from.data, from.stride,
                                                    sequence->dedup, to));
    }
    at_id += batch->begin[i + 1] - batch->begin[i];
  }
  if (sequence->dedup) PetscCall(add_duplicates(sharding, sequence, batch, stream, grad_rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}
