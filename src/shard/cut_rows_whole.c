/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The update "cut whole". The ranks that hold a row's columns exchange the weights, states and
  summed gradients of the rows that a batch touches. Each rank updates the whole row with the kernel
  of the uncut table, and keeps its own columns. Row-wise states are thus equal in all shards.

  The touched rows of a batch are listed when its ids have arrived, so that no rank has to wait for
  row counts in the update.

  Cost in a group with such a table: for each touched row, D * (2 + number of element-wise states)
  elements are sent to each of the row's other column blocks. Each block's rank updates the whole
  row. The touched rows and gradients of all tables are listed one after the other. A GPU sorts them
  in one call.
*/
#include "shard/cut_rows.h"

/* The kinds of data of a touched row: gradient, weights, optimizer states. */
enum {
  TRS_WHOLE_GRADS,
  TRS_WHOLE_WEIGHTS,
  TRS_WHOLE_STATES,
  TRS_N_WHOLE = TRS_WHOLE_STATES + TRS_OPTIMIZER_STATES
};

/* Lists of row copies: from the shards, from a message, and back to the shards. */
enum { TRS_COPY_OUT, TRS_COPY_ARRIVED, TRS_COPY_BACK, TRS_N_COPIES };

/*
  The alignment in bytes of the matrices in one buffer. It is also the unit of the exchanges.
*/
enum { TRS_WHOLE_UNIT = 16 };

/*
  The rows that a batch touches: table by table, in ascending order. They are row indices in the
  shards.
*/
typedef struct {
  int64_t *row_begin; /* [n_tables + 1] index of each table's first row */
  TrsDeviceBuffer rows;
  TrsPinnedBuffer copy;
  /* the rows in memory that the host can read; NULL: the host does not need them */
  const int64_t *on_host;
} TrsTouchedRows;

/* Rows in device memory: row i has `bytes` bytes at data + (index ? index[i] : i) * stride. */
typedef struct {
  char *data;
  const int64_t *index;
  int64_t stride, bytes;
} TrsRowsAt;

typedef struct {
  TrsCutRows rows;
  TrsTbeTable *uncut; /* [n_tables] the lookup's tables, but with 0 rows for cut tables */
  /* [n_tables] the cut tables with their whole rows, then empty entries */
  TrsTbeTable *whole_table;
  TrsEmbeddingStates *states; /* [n_tables] */
  PetscBool any_part;         /* true: a pair does not have all rows of this rank's shard */
  int n_cut;
  int64_t row_stride;   /* number of floats from one summed gradient to the next */
  int64_t whole_stride; /* number of floats from the gradient of one whole row to the next */
  TrsTouchedRows touched[TRS_TRAINING_SLOTS];
  const TrsTouchedRows *now; /* the rows of the batch that is being updated */
  TrsDeviceBuffer grads;
  /* [n_tables * TRS_N_WHOLE] byte at which a table's whole rows begin in each buffer of `whole` */
  int64_t *whole_begin;
  TrsDeviceBuffer whole[TRS_N_WHOLE];
  TrsDeviceBuffer keys, index; /* used for the rows of the uncut tables */
  int n_copies;                /* number of copies in the list */
  TrsRowsCopy *copy;
  TrsWorkspace list_workspace, cut_workspace, uncut_workspace, copy_workspace[TRS_N_COPIES];
} TrsWholeRows;

/* True if a pair does not have all rows of this rank's shard. */
static PetscBool is_part(const TrsWholeRows *w, const TrsRowsPair *pair)
{
  const TrsTbeTable *table = &w->rows.table[pair->local];

  return (PetscBool)(pair->begin > table->row_offset || pair->end < table->row_offset + table->rows);
}

/* Set the facts about the tables that do not change. */
static PetscErrorCode describe_tables(TrsWholeRows *w)
{
  const TrsEmbeddingShards *shards = w->rows.sharding->context->shards;
  const size_t n = (size_t)w->rows.n_tables;

  PetscFunctionBegin;
  PetscCall(
      PetscCalloc4(n + 1, &w->states, n, &w->uncut, n, &w->whole_table, n * TRS_N_WHOLE, &w->whole_begin));
  for (int t = 0; t < w->rows.n_tables; t++) {
    w->uncut[t] = w->rows.table[t];
    w->row_stride = PetscMax(w->row_stride, w->rows.table[t].dim);
    if (!w->rows.cut[t]) continue;
    w->uncut[t].rows = 0;
    w->whole_stride = PetscMax(w->whole_stride, w->rows.table[t].table_dim);
    w->n_cut++;
  }
  w->row_stride = (w->row_stride + 3) / 4 * 4;
  w->whole_stride = (w->whole_stride + 3) / 4 * 4;
  for (int p = 0; p < w->rows.recv.n; p++)
    w->any_part = (PetscBool)(w->any_part || is_part(w, &w->rows.recv.pair[p]));
  for (int i = 0; i < shards->n; i++) {
    const int t = TrsCutRowsNumber(&w->rows, i);
    if (t < w->rows.n_tables) w->states[t] = TrsEmbeddingShardsStates(shards, shards->shard[i].table);
  }
  for (int s = 0; s < TRS_TRAINING_SLOTS; s++) PetscCall(PetscCalloc1(n + 1, &w->touched[s].row_begin));
  PetscCall(PetscMalloc1((size_t)(w->n_cut + PetscMax(w->rows.send.n, w->rows.recv.n) + 1) * TRS_N_WHOLE,
                         &w->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_cut_whole(TrsSharding sharding)
{
  TrsWholeRows *w = (TrsWholeRows *)sharding->update_data;
  const TrsDeviceOps *device = sharding->context->device;
  const TrsComputeOps *compute = sharding->context->compute;

  PetscFunctionBegin;
  PetscCall(TrsCutRowsDestroy(&w->rows));
  for (int s = 0; s < TRS_TRAINING_SLOTS; s++) {
    PetscCall(PetscFree(w->touched[s].row_begin));
    PetscCall(TrsDeviceBufferFree(device, &w->touched[s].rows));
    PetscCall(TrsPinnedBufferFree(device, &w->touched[s].copy));
  }
  for (int k = 0; k < TRS_N_WHOLE; k++) PetscCall(TrsDeviceBufferFree(device, &w->whole[k]));
  PetscCall(TrsDeviceBufferFree(device, &w->grads));
  PetscCall(TrsDeviceBufferFree(device, &w->keys));
  PetscCall(TrsDeviceBufferFree(device, &w->index));
  PetscCall(compute->workspace_destroy(&w->list_workspace));
  PetscCall(compute->workspace_destroy(&w->cut_workspace));
  PetscCall(compute->workspace_destroy(&w->uncut_workspace));
  for (int i = 0; i < TRS_N_COPIES; i++) PetscCall(compute->workspace_destroy(&w->copy_workspace[i]));
  PetscCall(PetscFree(w->copy));
  PetscCall(PetscFree4(w->states, w->uncut, w->whole_table, w->whole_begin));
  PetscCall(PetscFree(sharding->update_data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_cut_whole(TrsSharding sharding)
{
  const TrsComputeOps *compute = sharding->context->compute;
  TrsWholeRows *w;

  PetscFunctionBegin;
  PetscCall(PetscNew(&w));
  sharding->update_data = w;
  PetscCall(TrsCutRowsSetUp(sharding, &w->rows));
  PetscCall(compute->workspace_create(&w->list_workspace));
  PetscCall(compute->workspace_create(&w->cut_workspace));
  PetscCall(compute->workspace_create(&w->uncut_workspace));
  for (int i = 0; i < TRS_N_COPIES; i++) PetscCall(compute->workspace_create(&w->copy_workspace[i]));
  PetscCall(describe_tables(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the rows that a batch touches --- */

static TrsTouchedRows *touched_of(TrsWholeRows *w, const TrsShardingSlot *slot)
{
  return &w->touched[slot - w->rows.sharding->slot];
}

/*
  List the rows that a training slot's batch touches. On a device, the host waits for the number of
  rows.
*/
static PetscErrorCode list_cut_whole(TrsSharding sharding, TrsShardingSlot *slot, TrsStream stream)
{
  TrsWholeRows *w = (TrsWholeRows *)sharding->update_data;
  const TrsDeviceOps *device = w->rows.sharding->context->device;
  TrsTouchedRows *touched = touched_of(w, slot);
  const int64_t n_values = slot->recv.jagged.n_values;
  int64_t bytes = n_values * (int64_t)sizeof(int64_t);

  PetscFunctionBegin;
  for (int t = 0; t <= w->rows.n_tables; t++) touched->row_begin[t] = 0;
  PetscCall(TrsDeviceBufferReserve(device, &touched->rows, bytes));
  touched->on_host = device->host_memory ? (const int64_t *)touched->rows.data : NULL;
  if (n_values == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsLookupSort(w->rows.sharding->lookup, stream, &slot->recv, TRS_TBE_LISTS, &slot->occurrences));
  PetscCall(TrsLookupListRows(w->rows.sharding->lookup, stream, w->list_workspace, &slot->recv,
                              slot->occurrences, touched->row_begin, (int64_t *)touched->rows.data));
  if (device->host_memory || !w->any_part) PetscFunctionReturn(PETSC_SUCCESS);
  bytes = touched->row_begin[w->rows.n_tables] * (int64_t)sizeof(int64_t);
  PetscCall(TrsPinnedBufferReserve(device, &touched->copy, bytes));
  PetscCall(device->copy(touched->copy.data, touched->rows.data, bytes, stream));
  PetscCall(device->stream_synchronize(stream));
  touched->on_host = (const int64_t *)touched->copy.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the touched rows of a pair: entries [*begin, *end) in the sorted list of its shard. */
static void find_entries(const TrsWholeRows *w, const TrsRowsPair *pair, int64_t *begin, int64_t *end)
{
  const int64_t offset = w->rows.table[pair->local].row_offset, limit[2] = {pair->begin, pair->end};
  int64_t *found[2] = {begin, end};

  *begin = w->now->row_begin[pair->local];
  *end = w->now->row_begin[pair->local + 1];
  for (int k = 0; k < 2 && is_part(w, pair); k++) {
    int64_t low = w->now->row_begin[pair->local], high = w->now->row_begin[pair->local + 1];
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (w->now->on_host[middle] + offset < limit[k])
        low = middle + 1;
      else
        high = middle;
    }
    *found[k] = low;
  }
}

/* --- addresses of row data --- */

static int n_kinds(const TrsWholeRows *w, int t)
{
  return TRS_WHOLE_STATES + w->states[t].n;
}

/* True if kind k has one number per row. This number is equal in all shards of the row. */
static PetscBool is_rowwise(const TrsWholeRows *w, int t, int k)
{
  return (PetscBool)(k >= TRS_WHOLE_STATES && w->states[t].rowwise[k - TRS_WHOLE_STATES]);
}

static int64_t element_bytes(const TrsWholeRows *w, int t, int k)
{
  return k == TRS_WHOLE_WEIGHTS ? TrsDTypeBytes(w->rows.table[t].dtype) : (int64_t)sizeof(float);
}

static int64_t round_up(int64_t bytes)
{
  return (bytes + TRS_WHOLE_UNIT - 1) / TRS_WHOLE_UNIT * TRS_WHOLE_UNIT;
}

/*
  The address of kind k in table t's shard, or in its summed gradients, for entries of the list from
  `begin` on.
*/
static TrsRowsAt in_shard(const TrsWholeRows *w, int t, int k, int64_t begin)
{
  const TrsTbeTable *table = &w->rows.table[t];
  const int64_t *rows = (const int64_t *)w->now->rows.data + begin;
  const int64_t bytes = element_bytes(w, t, k), row_bytes = (is_rowwise(w, t, k) ? 1 : table->dim) * bytes;

  if (k == TRS_WHOLE_GRADS)
    return (TrsRowsAt){(char *)w->grads.data + begin * w->row_stride * bytes, NULL, w->row_stride * bytes,
                       row_bytes};
  if (k == TRS_WHOLE_WEIGHTS)
    return (TrsRowsAt){(char *)table->weight, rows, table->stride * bytes, row_bytes};
  return (TrsRowsAt){(char *)table->state[k - TRS_WHOLE_STATES], rows, row_bytes, row_bytes};
}

/*
  The address of kind k in the whole rows: columns [column, column + width), for entries of the list
  from `begin` on.
*/
static TrsRowsAt in_whole(const TrsWholeRows *w, int t, int k, int64_t begin, int64_t column, int64_t width)
{
  const int64_t bytes = element_bytes(w, t, k);
  const int64_t stride = k == TRS_WHOLE_GRADS ? w->whole_stride : w->rows.table[t].table_dim;
  char *first = (char *)w->whole[k].data + w->whole_begin[t * TRS_N_WHOLE + k];

  begin -= w->now->row_begin[t];
  if (is_rowwise(w, t, k)) return (TrsRowsAt){first + begin * bytes, NULL, bytes, bytes};
  return (TrsRowsAt){first + (begin * stride + column) * bytes, NULL, stride * bytes, width * bytes};
}

/*
  The address of kind k in a message. The message has one matrix per kind, without gaps between
  rows.
*/
static TrsRowsAt in_message(const TrsWholeRows *w, const TrsRowsPair *pair, int k, char *at)
{
  const int64_t bytes = pair->width * element_bytes(w, pair->local, k);

  return (TrsRowsAt){at, NULL, bytes, bytes};
}

static int64_t message_bytes(const TrsWholeRows *w, const TrsRowsPair *pair, int k, int64_t n)
{
  return is_rowwise(w, pair->local, k) ? 0 : round_up(n * pair->width * element_bytes(w, pair->local, k));
}

static void add_copy(TrsWholeRows *w, int64_t n, TrsRowsAt from, TrsRowsAt to)
{
  if (n > 0)
    w->copy[w->n_copies++] = (TrsRowsCopy){.n = n,
                                           .row_bytes = from.bytes,
                                           .from = from.data,
                                           .from_stride = from.stride,
                                           .from_index = from.index,
                                           .to = to.data,
                                           .to_stride = to.stride,
                                           .to_index = to.index};
}

/* Make the copies in the list. */
static PetscErrorCode make_copies(TrsWholeRows *w, TrsStream stream, int which)
{
  PetscFunctionBegin;
  PetscCall(
      w->rows.sharding->context->compute->copy_rows(stream, w->copy_workspace[which], w->n_copies, w->copy));
  w->n_copies = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- exchange --- */

/* The number of units in a pair's message. */
static int64_t units_of(const void *update, const TrsRowsPair *pair)
{
  const TrsWholeRows *w = (const TrsWholeRows *)update;
  int64_t begin, end, bytes = 0;

  find_entries(w, pair, &begin, &end);
  for (int k = 0; k < n_kinds(w, pair->local); k++) bytes += message_bytes(w, pair, k, end - begin);
  return bytes / TRS_WHOLE_UNIT;
}

/*
  Add copies to the list for the rows of all pairs. If outgoing, they copy from the shards to
  messages. Otherwise they copy from messages to the whole rows.
*/
static void add_pair_copies(TrsWholeRows *w, PetscBool outgoing, const TrsRowsTraffic *traffic)
{
  char *at = (char *)traffic->data.data;

  for (int p = 0; p < traffic->n; p++) {
    const TrsRowsPair *pair = &traffic->pair[p];
    const int t = pair->local;
    int64_t begin, end;
    find_entries(w, pair, &begin, &end);
    for (int k = 0; k < n_kinds(w, t); k++) {
      const TrsRowsAt message = in_message(w, pair, k, at);

      if (is_rowwise(w, t, k)) continue;
      if (outgoing)
        add_copy(w, end - begin, in_shard(w, t, k, begin), message);
      else
        add_copy(w, end - begin, message, in_whole(w, t, k, begin, pair->column, pair->width));
      at += message_bytes(w, pair, k, end - begin);
    }
  }
}

/*
  Add copies to the list from the shards' own columns to the whole rows. With `back`, copy back
  after the update.
*/
static void add_own_copies(TrsWholeRows *w, PetscBool back)
{
  for (int t = 0; t < w->rows.n_tables; t++) {
    const int64_t begin = w->now->row_begin[t], n = w->now->row_begin[t + 1] - begin;

    for (int k = back ? TRS_WHOLE_WEIGHTS : TRS_WHOLE_GRADS; w->rows.cut[t] && k < n_kinds(w, t); k++) {
      const TrsRowsAt shard = in_shard(w, t, k, begin),
                      whole = in_whole(w, t, k, begin, w->rows.table[t].col_offset, w->rows.table[t].dim);

      add_copy(w, n, back ? whole : shard, back ? shard : whole);
    }
  }
}

/*
  Make the whole rows: copy the data of the touched rows from the shards, on this rank and on the
  ranks that hold the other columns.
*/
static PetscErrorCode make_whole(TrsWholeRows *w, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCall(TrsCutRowsReserve(&w->rows, TRS_WHOLE_UNIT, units_of, w));
  add_pair_copies(w, PETSC_TRUE, &w->rows.send);
  add_own_copies(w, PETSC_FALSE);
  PetscCall(make_copies(w, stream, TRS_COPY_OUT));
  PetscCall(TrsCutRowsExchange(&w->rows, stream, TRS_WHOLE_UNIT));
  add_pair_copies(w, PETSC_FALSE, &w->rows.recv);
  PetscCall(make_copies(w, stream, TRS_COPY_ARRIVED));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- update --- */

/* Lay out the memory of the whole rows of all cut tables. *n is the number of rows. */
static PetscErrorCode lay_out(TrsWholeRows *w, int64_t *n)
{
  int64_t end[TRS_N_WHOLE] = {0};

  PetscFunctionBegin;
  *n = 0;
  for (int t = 0; t < w->rows.n_tables; t++) {
    const int64_t rows = w->now->row_begin[t + 1] - w->now->row_begin[t];

    if (!w->rows.cut[t]) continue;
    *n += rows;
    for (int k = 0; k < n_kinds(w, t); k++) {
      const int64_t columns = k == TRS_WHOLE_GRADS  ? w->whole_stride
                              : is_rowwise(w, t, k) ? 1
                                                    : w->rows.table[t].table_dim;
      w->whole_begin[t * TRS_N_WHOLE + k] = end[k];
      end[k] += round_up(rows * columns * element_bytes(w, t, k));
    }
  }
  for (int k = 0; k < TRS_N_WHOLE; k++)
    PetscCall(TrsDeviceBufferReserve(w->rows.sharding->context->device, &w->whole[k], end[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Update the cut tables of which this rank has columns. The update works on whole rows. */
static PetscErrorCode update_cut(TrsWholeRows *w, TrsStream stream, const TrsSparseOptimizerArgs *args)
{
  int64_t n;
  int n_whole = 0;

  PetscFunctionBegin;
  PetscCall(lay_out(w, &n));
  PetscCall(make_whole(w, stream));
  for (int t = 0; t < w->rows.n_tables; t++) {
    TrsTbeTable *whole = &w->whole_table[n_whole];

    if (!w->rows.cut[t]) continue;
    *whole = w->rows.table[t];
    whole->rows = w->now->row_begin[t + 1] - w->now->row_begin[t];
    whole->dim = (int32_t)whole->table_dim;
    whole->stride = whole->table_dim;
    whole->col_offset = 0;
    whole->row_of = (const int64_t *)w->now->rows.data + w->now->row_begin[t];
    whole->weight = in_whole(w, t, TRS_WHOLE_WEIGHTS, w->now->row_begin[t], 0, 0).data;
    for (int s = 0; s < w->states[t].n; s++)
      whole->state[s] =
          (float *)(void *)in_whole(w, t, TRS_WHOLE_STATES + s, w->now->row_begin[t], 0, 0).data;
    n_whole++;
  }
  if (n > 0)
    PetscCall(w->rows.sharding->context->compute->tbe_update_rows(
        stream, w->cut_workspace, n_whole, w->whole_table,
        &(TrsRowGradients){
            .n = n, .grad = (const float *)w->whole[TRS_WHOLE_GRADS].data, .stride = w->whole_stride},
        args));
  add_own_copies(w, PETSC_TRUE);
  PetscCall(make_copies(w, stream, TRS_COPY_BACK));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Update the uncut tables, with the same lists. */
static PetscErrorCode update_uncut(TrsWholeRows *w, TrsStream stream, const TrsSparseOptimizerArgs *args)
{
  const TrsShardingContext *context = w->rows.sharding->context;
  const int64_t n = w->now->row_begin[w->rows.n_tables], bytes = n * (int64_t)sizeof(int64_t);

  PetscFunctionBegin;
  if (n == 0 || w->n_cut == w->rows.n_tables) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferReserve(context->device, &w->keys, bytes));
  PetscCall(TrsDeviceBufferReserve(context->device, &w->index, bytes));
  PetscCall(context->compute->merge_rows(stream, w->uncut_workspace, w->rows.n_tables, w->uncut, 1,
                                         w->now->row_begin, (const int64_t *)w->now->rows.data,
                                         (int64_t *)w->keys.data, (int64_t *)w->index.data));
  PetscCall(context->compute->tbe_update_rows(stream, w->uncut_workspace, w->rows.n_tables, w->uncut,
                                              &(TrsRowGradients){.n = n,
                                                                 .keys = (const int64_t *)w->keys.data,
                                                                 .index = (const int64_t *)w->index.data,
                                                                 .grad = (const float *)w->grads.data,
                                                                 .stride = w->row_stride},
                                              args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode apply_cut_whole(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                      TrsMatrix grad, const TrsSparseOptimizerArgs *args)
{
  TrsWholeRows *w = (TrsWholeRows *)sharding->update_data;
  const TrsLookup lookup = w->rows.sharding->lookup;

  PetscFunctionBegin;
  w->now = touched_of(w, slot);
  PetscCall(
      TrsDeviceBufferReserve(w->rows.sharding->context->device, &w->grads,
                             w->now->row_begin[w->rows.n_tables] * w->row_stride * (int64_t)sizeof(float)));
  if (slot->recv.jagged.n_values > 0)
    PetscCall(TrsLookupRowGradients(lookup, stream, &slot->recv, slot->occurrences, grad,
                                    (float *)w->grads.data, w->row_stride));
  /* rows are changed in their tables, so caches must be empty */
  PetscCall(TrsLookupDropLines(lookup, stream));
  PetscCall(update_cut(w, stream, args));
  PetscCall(update_uncut(w, stream, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsUpdateOps trs_update_cut_whole = {
    .name = "cut whole",
    .setup = setup_cut_whole,
    .destroy = destroy_cut_whole,
    .list = list_cut_whole,
    .apply = apply_cut_whole,
};
