/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Payload: replicas (data_parallel). Every rank holds the table and looks up its own samples' ids.
  Only gradients are sent.

  A row is updated once, with the sum of all ranks' gradients (src/RULES.md, rule A13). TorchRec
  instead passes the dense gradient to the dense optimizer. A batch's ids determine the rows that it
  touches. During the input dist, the ranks exchange lists of these rows and merge them in row
  order, and in rank order for equal rows. This overlaps with the compute of the previous batch. The
  backward sends the gradients in the order of the lists. All ranks then make the same additions in
  the same order, so the replicas stay equal bit for bit. Nothing waits for the host. A single rank
  updates the table as its owner.

  For sequence tables that are not averaged, each distinct row of a batch is looked up once, and its
  gradient is sent.

  Cost per step and rank, with n distinct rows in its batch and N in all ranks' batches: it sends n
  row_stride floats and 8 n bytes of row indices to every rank. It needs 4 N row_stride + 8 N bytes
  of memory, and 16 N bytes for each batch in flight.
*/
#include "core/events.h"
#include "shard/sequence.h"

/* The row lists of all ranks' batches, one after the other, in the order of ranks. */
typedef struct {
  /*
    [2, W, n_tables] numbers of distinct rows: first this rank's numbers, repeated for each rank,
    then every rank's numbers
  */
  int64_t *told;
  int64_t *begin;           /* [W * n_tables + 1] index of each list's first row */
  int64_t *counts, *displs; /* [W] number of rows of each rank, and their displacements */
  const int64_t *rows;      /* the rows in this rank's lists */
  /* int64 [2, N]: the rows as sorted keys, and the indices of their gradients */
  TrsDeviceBuffer merged;
  TrsCounts request;
} TrsRowLists;

typedef struct {
  int n_tables;
  const TrsTbeTable *table; /* [n_tables] the lookup's tables, in its order */
  /* floats from the gradient of one row to the next: the width of the widest table */
  int64_t row_stride;
  int64_t *row_begin; /* [n_tables + 1] index of the first row of each of this rank's lists */
  TrsRowLists lists[TRS_TRAINING_SLOTS];
  TrsDeviceBuffer rows, all_rows; /* int64, row lists of the batch that is in the input dist */
  TrsDeviceBuffer grads, all_grads;
  TrsRequest rows_request, grads_request;
  /*
    The workspace of updates. The next batch's input dist uses the group's workspace at the same
    time.
  */
  TrsWorkspace update;
  /* The remaining fields are used for sequence tables. */
  TrsSequence sequence;
  TrsDeviceBuffer distinct_rows; /* row indices, distinct within each table */
} TrsDataParallel;

static PetscErrorCode setup_data_parallel(TrsSharding sharding)
{
  const TrsShardingContext *context = sharding->context;
  const size_t W = (size_t)context->groups->world->size;
  TrsDataParallel *dp;

  PetscFunctionBegin;
  for (int i = 0; i < sharding->n_tables; i++)
    PetscCheck(!TrsPlacementTreats(context->shards, sharding->table[i], PETSC_TRUE), PETSC_COMM_SELF,
               TRS_ERR_INTERNAL, "replicas list their rows before keys become rows");
  PetscCall(PetscNew(&dp));
  sharding->data = dp;
  for (int e = 0; e < sharding->route.n_entries; e++)
    dp->row_stride = PetscMax(dp->row_stride, sharding->route.entry[e].columns);
  PetscCall(TrsRouteCreateLookup(sharding, PETSC_TRUE, PETSC_TRUE, &sharding->lookup, NULL));
  PetscCall(TrsLookupTables(sharding->lookup, &dp->n_tables, &dp->table));
  PetscCall(context->compute->workspace_create(&dp->update));
  PetscCall(PetscCalloc1((size_t)dp->n_tables + 1, &dp->row_begin));
  for (int i = 0; i < TRS_TRAINING_SLOTS; i++) {
    TrsRowLists *lists = &dp->lists[i];
    lists->request.mpi = MPI_REQUEST_NULL;
    PetscCall(PetscCalloc4(2 * W * (size_t)dp->n_tables, &lists->told, W * (size_t)dp->n_tables + 1,
                           &lists->begin, W, &lists->counts, W, &lists->displs));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_data_parallel(TrsSharding sharding)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  TrsDeviceBuffer *buffers[] = {&dp->rows, &dp->grads, &dp->all_rows, &dp->all_grads};
  const TrsDeviceOps *device = sharding->context->device;

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
    PetscCall(TrsDeviceBufferFree(device, buffers[i]));
  for (int i = 0; i < TRS_TRAINING_SLOTS; i++) {
    TrsRowLists *lists = &dp->lists[i];
    PetscCall(TrsDeviceBufferFree(device, &lists->merged));
    PetscCall(PetscFree4(lists->told, lists->begin, lists->counts, lists->displs));
  }
  PetscCall(sharding->context->compute->workspace_destroy(&dp->update));
  PetscCall(PetscFree(dp->row_begin));
  PetscCall(PetscFree(dp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the rows of a batch --- */

/* True if nothing is sent: there is one rank, and it updates pooled tables directly. */
static PetscBool is_alone(TrsSharding sharding)
{
  const TrsDataParallel *dp = (const TrsDataParallel *)sharding->data;

  return (PetscBool)(sharding->context->groups->world->size == 1 && !dp->sequence.piece);
}

/* The row lists of the slot's batch. NULL: the batch does not need any. */
static TrsRowLists *lists_of(TrsSharding sharding, const TrsShardingSlot *slot)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const int64_t i = slot - sharding->slot;

  return i < TRS_TRAINING_SLOTS && !is_alone(sharding) ? &dp->lists[i] : NULL;
}

/*
  Send the lengths of this rank's row lists to all ranks. The list of table t begins at
  rows[row_begin[t]].
*/
static PetscErrorCode tell_rows(TrsSharding sharding, TrsRowLists *lists, const int64_t *row_begin,
                                const int64_t *rows)
{
  const TrsDataParallel *dp = (const TrsDataParallel *)sharding->data;
  const TrsComm comm = sharding->context->groups->input;
  const int T = dp->n_tables;

  PetscFunctionBegin;
  for (int i = 0; i < comm->size * T; i++) lists->told[i] = row_begin[i % T + 1] - row_begin[i % T];
  lists->rows = rows;
  PetscCall(TrsCommCountsStart(comm, T, lists->told, lists->told + (int64_t)comm->size * T, &lists->request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_data_parallel(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  TrsRowLists *lists = lists_of(sharding, slot);

  PetscFunctionBegin;
  PetscCall(TrsKjtPermute(context->device, context->compute, stream, sharding->workspace, slot->batch,
                          sharding->route.n_entries, sharding->route.feature, &slot->recv));
  if (!lists) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferReserveShared(context->device, &dp->rows,
                                         slot->recv.jagged.n_values * (int64_t)sizeof(int64_t)));
  PetscCall(TrsLookupSort(sharding->lookup, stream, &slot->recv, TRS_TBE_LISTS, &slot->occurrences));
  PetscCall(TrsLookupListRows(sharding->lookup, stream, sharding->workspace, &slot->recv, slot->occurrences,
                              dp->row_begin, (int64_t *)dp->rows.data));
  PetscCall(tell_rows(sharding, lists, dp->row_begin, (const int64_t *)dp->rows.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The total number of rows in all ranks' lists. */
static int64_t n_of_all(const TrsDataParallel *dp, int W, const TrsRowLists *lists)
{
  return lists->begin[(int64_t)W * dp->n_tables];
}

static PetscErrorCode input_start_data_parallel(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsComm comm = sharding->context->groups->input;
  const TrsDeviceOps *device = sharding->context->device;
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  TrsRowLists *lists = lists_of(sharding, slot);
  const int64_t T = dp->n_tables, W = comm->size;

  PetscFunctionBegin;
  if (!lists) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCommCountsWait(&lists->request));
  for (int64_t i = 0; i < W * T; i++) lists->begin[i + 1] = lists->begin[i] + lists->told[W * T + i];
  for (int64_t q = 0; q < W; q++) {
    lists->displs[q] = lists->begin[q * T];
    lists->counts[q] = lists->begin[(q + 1) * T] - lists->displs[q];
  }
  PetscCall(TrsDeviceBufferReserve(device, &dp->all_rows,
                                   n_of_all(dp, comm->size, lists) * (int64_t)sizeof(int64_t)));
  PetscCall(TrsCommAllgatherv(comm, stream, lists->rows, dp->all_rows.data, lists->counts, lists->displs,
                              sizeof(int64_t), &dp->rows_request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode input_wait_data_parallel(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  const TrsShardingContext *context = sharding->context;
  const int W = context->groups->input->size;
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  TrsRowLists *lists = lists_of(sharding, slot);
  int64_t n, *keys;

  PetscFunctionBegin;
  if (!lists) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsRequestWait(&dp->rows_request, stream));
  n = n_of_all(dp, W, lists);
  PetscCall(TrsDeviceBufferReserve(context->device, &lists->merged, 2 * n * (int64_t)sizeof(*keys)));
  keys = (int64_t *)lists->merged.data;
  PetscCall(context->compute->merge_rows(stream, sharding->workspace, dp->n_tables, dp->table, W,
                                         lists->begin, (const int64_t *)dp->all_rows.data, keys, keys + n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- forward and backward --- */

static PetscErrorCode forward_start_data_parallel(TrsSharding sharding, TrsShardingSlot *slot,
                                                  TrsStream stream, const TrsPooledMatrix *pooled)
{
  PetscFunctionBegin;
  PetscCall(TrsLookupForward(sharding->lookup, stream, &slot->recv, pooled->rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_wait_data_parallel(TrsSharding sharding, TrsShardingSlot *slot,
                                                 TrsStream stream, const TrsPooledMatrix *pooled)
{
  PetscFunctionBegin;
  (void)sharding;
  (void)slot;
  (void)stream;
  (void)pooled;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Send dp->grads, the gradients of this rank's rows, to all ranks. */
static PetscErrorCode send_gradients(TrsSharding sharding, TrsStream stream, const TrsRowLists *lists)
{
  const TrsComm comm = sharding->context->groups->world;
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const int64_t row_bytes = dp->row_stride * (int64_t)sizeof(float);

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(sharding->context->device, &dp->all_grads,
                                   n_of_all(dp, comm->size, lists) * row_bytes));
  PetscCall(TrsCommAllgatherv(comm, stream, dp->grads.data, dp->all_grads.data, lists->counts, lists->displs,
                              row_bytes, &dp->grads_request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_data_parallel(TrsSharding sharding, TrsShardingSlot *slot,
                                                   TrsStream stream, const TrsPooledMatrix *grad)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const TrsRowLists *lists = lists_of(sharding, slot);
  TrsStage before;

  PetscFunctionBegin;
  if (is_alone(sharding)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(lists, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a backward in the slot of evaluations");
  PetscCall(TrsDeviceBufferReserveShared(sharding->context->device, &dp->grads,
                                         lists->counts[sharding->context->groups->world->rank] *
                                             dp->row_stride * (int64_t)sizeof(float)));
  PetscCall(TrsStageSwitch(TRS_STAGE_EMBEDDING_BACKWARD, &before));
  PetscCall(TrsLookupRowGradients(sharding->lookup, stream, &slot->recv, slot->occurrences, grad->rows,
                                  (float *)dp->grads.data, dp->row_stride));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscCall(send_gradients(sharding, stream, lists));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_wait_data_parallel(TrsSharding sharding, TrsShardingSlot *slot,
                                                  TrsStream stream, const TrsPooledMatrix *grad,
                                                  TrsMatrix *arrived)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const PetscBool alone = is_alone(sharding);

  PetscFunctionBegin;
  (void)slot;
  PetscCall(TrsRequestWait(&dp->grads_request, stream));
  *arrived = alone ? grad->rows : TrsFloats((const float *)dp->all_grads.data, dp->row_stride);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Sort the ids, but only if there is one rank. The rows of several ranks are sorted when they are
  listed.
*/
static PetscErrorCode sort_replicas(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  PetscFunctionBegin;
  if (is_alone(sharding))
    PetscCall(TrsLookupSort(sharding->lookup, stream, &slot->recv, TRS_TBE_BY_BAG, &slot->occurrences));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode apply_replicas(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                     TrsMatrix grad, const TrsSparseOptimizerArgs *args)
{
  const TrsDataParallel *dp = (const TrsDataParallel *)sharding->data;
  const TrsRowLists *lists = lists_of(sharding, slot);
  const int64_t *keys;
  int64_t n;

  PetscFunctionBegin;
  if (is_alone(sharding)) {
    PetscCall(TrsLookupPositionGradients(sharding->lookup, stream, &slot->recv, grad));
    PetscCall(TrsLookupBackward(sharding->lookup, stream, &slot->recv, slot->occurrences, grad, NULL, args));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  n = n_of_all(dp, sharding->context->groups->world->size, lists);
  keys = (const int64_t *)lists->merged.data;
  PetscCall(sharding->context->compute->tbe_update_rows(
      stream, dp->update, dp->n_tables, dp->table,
      &(TrsRowGradients){
          .n = n, .keys = keys, .index = keys + n, .grad = (const float *)grad.data, .stride = grad.stride},
      args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsUpdateOps trs_update_replicas = {.name = "replicas", .sort = sort_replicas, .apply = apply_replicas};

const TrsShardingOps trs_payload_replicas = {
    .name = "data_parallel",
    .typed = PETSC_TRUE,
    .setup = setup_data_parallel,
    .destroy = destroy_data_parallel,
    .prepare = prepare_data_parallel,
    .input_start = input_start_data_parallel,
    .input_wait = input_wait_data_parallel,
    .forward_start = forward_start_data_parallel,
    .forward_wait = forward_wait_data_parallel,
    .backward_start = backward_start_data_parallel,
    .backward_wait = backward_wait_data_parallel,
};

/* --- sequences --- */

static PetscErrorCode setup_sequences(TrsSharding sharding)
{
  TrsDataParallel *dp;

  PetscFunctionBegin;
  PetscCall(setup_data_parallel(sharding));
  dp = (TrsDataParallel *)sharding->data;
  PetscCall(TrsSequenceCreate(sharding, PETSC_TRUE, &dp->sequence));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_sequences(TrsSharding sharding)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;

  PetscFunctionBegin;
  PetscCall(TrsSequenceDestroy(sharding, &dp->sequence));
  PetscCall(TrsDeviceBufferFree(sharding->context->device, &dp->distinct_rows));
  PetscCall(destroy_data_parallel(sharding));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode prepare_sequences(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  TrsRowLists *lists = lists_of(sharding, slot);
  TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, &dp->sequence, slot);
  const TrsKjt *ids;

  PetscFunctionBegin;
  PetscCall(TrsSequencePrepare(sharding, &dp->sequence, slot, stream, &ids));
  for (int i = 0; i < sharding->n_tables; i++)
    batch->where[i] = (TrsSequenceRows){.index = (const int64_t *)batch->reverse.data,
                                        .shift = batch->unique_begin[i],
                                        .n = TrsSequenceIds(&dp->sequence, batch, i)};
  if (lists) PetscCall(tell_rows(sharding, lists, batch->unique_begin, ids->jagged.values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode sort_sequences(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsSequenceSort(sharding, &((TrsDataParallel *)sharding->data)->sequence, slot, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_start_sequences(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                              const TrsPooledMatrix *pooled)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, &dp->sequence, slot);

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(sharding->context->device, &dp->distinct_rows,
                                   batch->unique.jagged.n_values * dp->row_stride * (int64_t)sizeof(float)));
  PetscCall(TrsLookupForwardRows(sharding->lookup, stream, &batch->unique, (float *)dp->distinct_rows.data,
                                 dp->row_stride));
  PetscCall(
      TrsSequencePool(sharding, &dp->sequence, slot, stream, (const float *)dp->distinct_rows.data, pooled));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward_start_sequences(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream,
                                               const TrsPooledMatrix *grad)
{
  TrsDataParallel *dp = (TrsDataParallel *)sharding->data;
  const TrsSequenceBatch *batch = TrsSequenceBatchOf(sharding, &dp->sequence, slot);
  const int64_t n = batch->unique.jagged.n_values;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(sharding->context->device, &dp->grads,
                                         n * dp->row_stride * (int64_t)sizeof(float)));
  PetscCall(TrsSequenceUnpool(sharding, &dp->sequence, slot, stream, (const float *)dp->distinct_rows.data,
                              grad, n, (float *)dp->grads.data));
  PetscCall(send_gradients(sharding, stream, lists_of(sharding, slot)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsShardingOps trs_payload_sequence_replicas = {
    .name = "sequences on every rank",
    .setup = setup_sequences,
    .destroy = destroy_sequences,
    .prepare = prepare_sequences,
    .input_start = input_start_data_parallel,
    .input_wait = input_wait_data_parallel,
    .sort = sort_sequences,
    .forward_start = forward_start_sequences,
    .forward_wait = forward_wait_data_parallel,
    .backward_start = backward_start_sequences,
    .backward_wait = backward_wait_data_parallel,
};
