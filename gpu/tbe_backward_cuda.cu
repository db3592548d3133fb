/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Table-batched embedding on the GPU: backward with the optimizer fused. Twin of src/compute/tbe_cpu.c.

  Occurrences get the key of their row among all rows of the call's tables and are sorted by it, stably, so a row's are neighbours in order of feature,
  bag and place. Each such run gets one update. A run longer than SHORT_RUN is cut at places that depend on its length alone into about sqrt(length)
  pieces; their sums are taken first, by as many groups of lanes, then added in order: no atomics, the same bits run after run.
  Tables of one type, alignment and width form a class: neighbours in the key space, one launch. Nothing of this waits: how many runs there are
  is known on the device only.

  Bytes moved for N occurrences: keys about 24 N a pass of the sort and its bits / 8 passes, the gradients' rows once, the rows that occur and their
  states read and written once. Scratch: 100 N bytes and N / 32 rows of sums.
  Source: FBGEMM split_embedding_backward_codegen_*, tbe_cpu.c
*/
#include "gpu/compute_cuda.h"
#include "gpu/scan_cuda.h"
#include "gpu/tbe_step_cuda.h"

#include <math.h>

enum { TRS_UPDATE_THREADS = 128, TRS_KEY_THREADS = 256, TRS_IN_FLIGHT = 4, TRS_SHORT_RUN = 64 };
/* Shared memory of a block without and with asking for it, bytes. */
enum { TRS_SHARED_PLAIN = 48 << 10 };

/* A feature on the device. */
struct UpdateFeature {
  int64_t key_begin, rows; /* of its table */
  int64_t out_column;
  int64_t mean;
};

/* The call's occurrences in sorted order, and the runs in them. Device memory. */
struct Occurrences {
  int64_t n;
  uint64_t *key;
  int64_t *source; /* [n] place of the gradient in grad, */
  float *scale;    /* and its factor; NULL: all 1 */
  const float *grad;
  float max_gradient;
  int64_t *before;      /* [n + 1] runs that begin before; before[n] is their number */
  int64_t *run_begin;   /* [runs + 1] */
  uint64_t *run_key;    /* [runs] */
  int64_t *piece_begin; /* [n + 1] pieces of long runs before */
  int32_t *flags;       /* [n] */
  float *sums;          /* [pieces, sums_stride] */
  int64_t sums_stride;
  const UpdateTable *table; /* [n_tables + 1] in the order of keys */
  int n_tables;
};

/* The same before the sort: item is the number of a value in the batch. */
struct Unsorted {
  uint64_t *key;
  uint32_t *item, *sorted_item;
  int64_t *source;
  float *scale;
};

/* --- keys --- */

/* A group of lanes has a bag. Ids that are no rows get a key behind all rows. */
static __global__ void bag_keys_kernel(const UpdateFeature *features, int n_features, TrsTbeInput input,
                                       uint64_t end_key, int pooled, int64_t grad_stride, int lanes_log2,
                                       Unsorted u)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);

  for (int64_t bag = TrsCudaFirst() >> lanes_log2; bag < n_features * input.batch;
       bag += TrsCudaStep() >> lanes_log2) {
    const UpdateFeature f = features[bag / input.batch];
    const int64_t begin = input.offsets[bag], end = input.offsets[bag + 1];
    const float share = f.mean && end > begin ? 1.0f / static_cast<float>(end - begin) : 1.0f;
    const int64_t place = bag % input.batch * grad_stride + f.out_column;

    for (int64_t i = begin + lane; i < end; i += lanes) {
      const int64_t id = input.values[i];

      u.key[i] = static_cast<uint64_t>(id) < static_cast<uint64_t>(f.rows)
                     ? static_cast<uint64_t>(f.key_begin + id)
                     : end_key;
      u.item[i] = static_cast<uint32_t>(i);
      u.source[i] = pooled ? place : i * grad_stride;
      if (u.scale) u.scale[i] = input.weights ? input.weights[i] * share : share;
    }
  }
}

/* Rows given in sorted order. */
static __global__ void row_keys_kernel(const int64_t *rows, const int64_t *index, int64_t grad_stride,
                                       Occurrences o)
{
  for (int64_t i = TrsCudaFirst(); i < o.n; i += TrsCudaStep()) {
    o.key[i] = static_cast<uint64_t>(rows[i]);
    o.source[i] = (index ? index[i] : i) * grad_stride;
  }
}

/* --- runs and pieces --- */

/* Flags where runs begin; sources and scales follow the keys, so that the sums need not go by way of the items. */
static __global__ void run_flags_kernel(Occurrences o, Unsorted u, uint64_t end_key)
{
  for (int64_t i = TrsCudaFirst(); i < o.n; i += TrsCudaStep()) {
    o.flags[i] = o.key[i] < end_key && (i == 0 || o.key[i] != o.key[i - 1]);
    if (u.sorted_item) o.source[i] = u.source[u.sorted_item[i]];
    if (o.scale) o.scale[i] = u.scale[u.sorted_item[i]];
  }
}

/* run_begin[runs] is the end of the last: the first key that is no row. */
static __global__ void run_begin_kernel(Occurrences o, uint64_t end_key)
{
  for (int64_t i = TrsCudaFirst(); i <= o.n; i += TrsCudaStep()) {
    const bool valid = i < o.n && o.key[i] < end_key;

    if (valid && o.flags[i]) {
      o.run_begin[o.before[i]] = i;
      o.run_key[o.before[i]] = o.key[i];
    } else if (!valid && (i == 0 || o.key[i - 1] < end_key)) {
      o.run_begin[o.before[o.n]] = i;
    }
  }
}

/* Occurrences of a piece: a power of 2 near the square root of the run's length. */
static __device__ __forceinline__ int64_t piece_length(int64_t run_length)
{
  int64_t length = TRS_SHORT_RUN;

  while (length * length < run_length) length *= 2;
  return length;
}

static __global__ void piece_counts_kernel(Occurrences o)
{
  for (int64_t r = TrsCudaFirst(); r < o.n; r += TrsCudaStep()) {
    int32_t count = 0;

    if (r < o.before[o.n]) {
      const int64_t length = o.run_begin[r + 1] - o.run_begin[r];
      if (length > TRS_SHORT_RUN)
        count = static_cast<int32_t>((length + piece_length(length) - 1) / piece_length(length));
    }
    o.flags[r] = count;
  }
}

/* First run whose key is not below each of n boundaries. */
static __global__ void runs_at_kernel(Occurrences o, int n, const int *boundary_table, int64_t *run)
{
  for (int64_t c = TrsCudaFirst(); c < n; c += TrsCudaStep()) {
    const uint64_t key = static_cast<uint64_t>(o.table[boundary_table[c]].key_begin);
    int64_t low = 0, high = o.before[o.n];

    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (o.run_key[middle] < key)
        low = middle + 1;
      else
        high = middle;
    }
    run[c] = low;
  }
}

/* --- sums --- */

static __device__ __forceinline__ const UpdateTable *table_of(const Occurrences &o, uint64_t key)
{
  int low = 0, high = o.n_tables - 1;

  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (static_cast<uint64_t>(o.table[middle].key_begin) <= key)
      low = middle;
    else
      high = middle - 1;
  }
  return &o.table[low];
}

static __device__ __forceinline__ float clamped(float x, float limit)
{
  return limit > 0.0f ? (x > limit ? limit : x < -limit ? -limit : x) : x;
}

/* acc[COLUMNS] = sum of the gradients of sorted occurrences [begin, end), in order, in columns col .. */
template <int COLUMNS>
static __device__ __forceinline__ void sum_occurrences(const Occurrences &o, int64_t begin, int64_t end,
                                                       int col, float *acc)
{
  for (int j = 0; j < COLUMNS; j++) acc[j] = 0.0f;
  for (int64_t k = begin; k < end; k += TRS_IN_FLIGHT) {
    float x[TRS_IN_FLIGHT][COLUMNS], scale[TRS_IN_FLIGHT];

#pragma unroll
    for (int u = 0; u < TRS_IN_FLIGHT; u++) {
      scale[u] = 0.0f;
      for (int j = 0; j < COLUMNS; j++) x[u][j] = 0.0f;
      if (k + u >= end) continue;
      scale[u] = o.scale ? o.scale[k + u] : 1.0f;
      load_floats<COLUMNS>(o.grad + o.source[k + u] + col, x[u]);
    }
#pragma unroll
    for (int u = 0; u < TRS_IN_FLIGHT; u++)
      for (int j = 0; j < COLUMNS; j++) acc[j] += scale[u] * clamped(x[u][j], o.max_gradient);
  }
}

/* Pieces of long runs of one class: a group of lanes has a piece. class_run: the class's first run, and the next class's. */
template <int COLUMNS>
static __global__ void __launch_bounds__(TRS_UPDATE_THREADS)
    piece_sums_kernel(Occurrences o, const int64_t *class_run, int lanes_log2)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t first_run = class_run[0], end_run = class_run[1], end = o.piece_begin[end_run];

  for (int64_t p = o.piece_begin[first_run] + (TrsCudaFirst() >> lanes_log2); p < end;
       p += TrsCudaStep() >> lanes_log2) {
    int64_t r = first_run, high = end_run - 1;

    while (r < high) {
      const int64_t middle = (r + high + 1) / 2;
      if (o.piece_begin[middle] <= p)
        r = middle;
      else
        high = middle - 1;
    }
    const int64_t run = o.run_begin[r], run_end = o.run_begin[r + 1], length = piece_length(run_end - run);
    const int64_t first = run + (p - o.piece_begin[r]) * length;
    const int64_t last = first + length < run_end ? first + length : run_end;
    const int dim = table_of(o, o.run_key[r])->table.dim;

    for (int col = lane * COLUMNS; col < dim; col += lanes * COLUMNS) {
      float acc[COLUMNS];

      sum_occurrences<COLUMNS>(o, first, last, col, acc);
      store_floats<COLUMNS>(o.sums + p * o.sums_stride + col, acc);
    }
  }
}

/* The summed gradient of run r in columns col .. */
template <int COLUMNS>
static __device__ __forceinline__ void sum_run(const Occurrences &o, int64_t r, int col, float *acc)
{
  const int64_t first = o.piece_begin[r], end = o.piece_begin[r + 1];

  if (first == end) {
    sum_occurrences<COLUMNS>(o, o.run_begin[r], o.run_begin[r + 1], col, acc);
    return;
  }
  load_floats<COLUMNS>(o.sums + first * o.sums_stride + col, acc);
  for (int64_t p = first + 1; p < end; p++) {
    float x[COLUMNS];

    load_floats<COLUMNS>(o.sums + p * o.sums_stride + col, x);
    for (int j = 0; j < COLUMNS; j++) acc[j] += x[j];
  }
}

/* --- what is done with the sums: a group of lanes has a run --- */

/* Shared memory: a gradient, and where `scratch` more floats, of each of the block's groups; each lane uses its own columns only. */
template <TrsDType DTYPE, int COLUMNS>
static __global__ void __launch_bounds__(TRS_UPDATE_THREADS)
    update_kernel(Occurrences o, const int64_t *class_run, int lanes_log2, int group_floats, int scratch,
                  Step step)
{
  CU_DYN_SHARED(float, shared);
  const int lanes = 1 << lanes_log2;
  float *const g = shared + static_cast<int64_t>(threadIdx.x >> lanes_log2) * group_floats, *const r_scratch =
                                                                                                g + scratch;
  GroupRow at = {nullptr, 0, static_cast<int>(threadIdx.x) & (lanes - 1), lanes, group_mask(lanes)};

  for (int64_t r = class_run[0] + (TrsCudaFirst() >> lanes_log2); r < class_run[1];
       r += TrsCudaStep() >> lanes_log2) {
    const uint64_t key = o.run_key[r];
    const UpdateTable *const t = table_of(o, key);
    const TrsTbeTable table = t->table;

    at.table = &table;
    at.row = static_cast<int64_t>(key) - t->key_begin;
    prefetch_step<DTYPE, COLUMNS>(step, at);
    FOR_COLUMNS(col)
    {
      float acc[COLUMNS];

      sum_run<COLUMNS>(o, r, col, acc);
      store_floats<COLUMNS>(g + col, acc);
    }
    step_row<DTYPE, COLUMNS>(step, at, g, r_scratch);
  }
}

/* data_parallel: rows and their gradients are listed, ascending by table and row. */
template <int COLUMNS>
static __global__ void __launch_bounds__(TRS_UPDATE_THREADS)
    list_kernel(Occurrences o, const int64_t *class_run, int lanes_log2, int64_t *rows, float *row_grad,
                int64_t row_stride)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);

  for (int64_t r = class_run[0] + (TrsCudaFirst() >> lanes_log2); r < class_run[1];
       r += TrsCudaStep() >> lanes_log2) {
    const uint64_t key = o.run_key[r];
    const UpdateTable *const t = table_of(o, key);

    if (lane == 0) rows[r] = static_cast<int64_t>(key) - t->key_begin;
    for (int col = lane * COLUMNS; col < t->table.dim; col += lanes * COLUMNS) {
      float acc[COLUMNS];

      sum_run<COLUMNS>(o, r, col, acc);
      for (int j = 0; j < COLUMNS; j++) row_grad[r * row_stride + col + j] = acc[j];
    }
  }
}

/* --- host: classes of tables --- */

/* Tables of one kernel and one optimizer. key: type * 12 + aligned * 6 + log2 of lanes */
struct UpdateClass {
  int key, optimizer, first_table, end_table, widest;
};

/* A call: tables in the order of keys, their classes. */
struct Backward {
  const TrsTbe *tbe;
  int64_t grad_stride;
  bool pooled, in_order; /* in_order: keys in the order of tables */
  UpdateTable *table;    /* [n_tables + 1] host */
  int *place;            /* [n_tables] of each table in it */
  UpdateClass *classes;  /* [n_tables] */
  int n_classes, widest;
  uint64_t end_key;
  int64_t *class_run; /* device [n_classes + 1] */
  Occurrences o;
  Unsorted u;
};

static bool is_aligned(const Backward *b, int t, const float *grad)
{
  const TrsTbeTable *table = &b->tbe->table[t];
  bool aligned = table->dim % 4 == 0 && TrsCudaIsAligned(grad, b->grad_stride * 4, 16) &&
                 TrsCudaIsAligned(table->weight, table->stride * TrsDTypeBytes(table->dtype),
                                  4 * TrsDTypeBytes(table->dtype)) &&
                 TrsCudaIsAligned(table->state[0], 0, 16) && TrsCudaIsAligned(table->state[1], 0, 16);

  for (int f = 0; b->pooled && f < b->tbe->n_features && aligned; f++)
    if (b->tbe->feature[f].table == t) aligned = b->tbe->feature[f].out_column % 4 == 0;
  return aligned;
}

static void add_table(Backward *b, int t, int key)
{
  UpdateClass *last = &b->classes[b->n_classes - 1];
  const int at = b->n_classes > 0 ? last->end_table : 0;
  UpdateTable *table = &b->table[at];

  const int optimizer = b->tbe->table[t].optimizer;
  if (b->n_classes == 0 || last->key != key || last->optimizer != optimizer) {
    last = &b->classes[b->n_classes++];
    *last = {key, optimizer, at, at, 0};
  }
  last->end_table = at + 1;
  last->widest = PetscMax(last->widest, b->tbe->table[t].dim);
  b->widest = PetscMax(b->widest, last->widest);
  b->place[t] = at;
  table->table = b->tbe->table[t];
  table->key_begin = static_cast<int64_t>(b->end_key);
  b->end_key += static_cast<uint64_t>(b->tbe->table[t].rows);
  table[1] = {};
  table[1].key_begin = static_cast<int64_t>(b->end_key);
}

/* Put the tables into the order of their keys and find the classes. */
static PetscErrorCode order_tables(TrsWorkspace workspace, const float *grad, Backward *b)
{
  enum { N_KEYS = TRS_N_DTYPES * 12 };
  const int n = b->tbe->n_tables;
  bool used[N_KEYS] = {};
  int n_optimizers = 1;
  int *key;
  char *room;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_TABLES, n + 1, sizeof(*b->table), &b->table));
  memset(b->table, 0,
         static_cast<size_t>(n + 1) * sizeof(*b->table)); /* padding, too: compared with the last upload */
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_CLASSES, n, sizeof(*b->classes) + 2 * sizeof(int), &room));
  b->classes = reinterpret_cast<UpdateClass *>(room);
  b->place = reinterpret_cast<int *>(b->classes + n);
  key = b->place + n;
  for (int t = 0; t < n; t++) {
    const bool aligned = is_aligned(b, t, grad);
    const TrsTbeTable *table = &b->tbe->table[t];

    PetscCheck(table->dtype == TRS_FP32 || table->dtype == TRS_FP16 || table->dtype == TRS_BF16,
               PETSC_COMM_SELF, TRS_ERR_INTERNAL, "tables of %s cannot be trained",
               TrsDTypeName(table->dtype));
    key[t] = static_cast<int>(table->dtype) * 12 + aligned * 6 +
             TrsCudaLanesLog2(table->dim, aligned ? 4 : 1);
    used[key[t]] = true;
    n_optimizers = PetscMax(n_optimizers, table->optimizer + 1);
    if (b->in_order) add_table(b, t, key[t]);
  }
  for (int k = 0; k < N_KEYS && !b->in_order; k++)
    for (int o = 0; o < n_optimizers && used[k]; o++)
      for (int t = 0; t < n; t++)
        if (key[t] == k && b->tbe->table[t].optimizer == o) add_table(b, t, k);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reserve(TrsWorkspace w, int64_t n, bool scaled, Occurrences *o, int widest)
{
  PetscFunctionBegin;
  PetscCheck(n < UINT32_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%lld ids in one batch of one rank are more than the GPU's backward takes (2^32)",
             static_cast<long long>(n));
  o->n = n;
  o->sums_stride = (widest + 3) / 4 * 4;
  PetscCall(TrsCudaScratch(w, TRS_CUDA_KEYS_SORTED, n, sizeof(*o->key), &o->key));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_SOURCES, n, sizeof(*o->source), &o->source));
  if (scaled) PetscCall(TrsCudaScratch(w, TRS_CUDA_SCALES, n, sizeof(*o->scale), &o->scale));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_FLAGS, n, sizeof(*o->flags), &o->flags));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_RUNS, 3 * (n + 1), sizeof(*o->before), &o->before));
  o->run_begin = o->before + n + 1;
  o->run_key = reinterpret_cast<uint64_t *>(o->run_begin + n + 1);
  PetscCall(TrsCudaScratch(w, TRS_CUDA_PIECES, n + 1, sizeof(*o->piece_begin), &o->piece_begin));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_SUMS, (n / (TRS_SHORT_RUN / 2) + 1) * o->sums_stride, sizeof(*o->sums),
                           &o->sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int bits_for(uint64_t largest)
{
  int bits = 1;

  while (bits < 64 && largest >> bits) bits++;
  return bits;
}

/* Keys of all occurrences in a batch, sorted. */
static PetscErrorCode sort_batch(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                                 Backward *b)
{
  const TrsTbe *tbe = b->tbe;
  const int64_t n_bags = tbe->n_features * input->batch;
  UpdateFeature *list, *features;
  Unsorted *u = &b->u;
  int lanes_log2 = 0;

  PetscFunctionBegin;
  while (lanes_log2 < 5 && n_bags << lanes_log2 < input->n_values) lanes_log2++; /* lanes: ids of a bag */
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_KEYS, b->o.n, sizeof(*u->key), &u->key));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_ITEMS, b->o.n, sizeof(*u->item), &u->item));
  PetscCall(
      TrsCudaScratch(workspace, TRS_CUDA_ITEMS_SORTED, b->o.n, sizeof(*u->sorted_item), &u->sorted_item));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_SOURCES_UNSORTED, b->o.n, sizeof(*u->source), &u->source));
  if (b->o.scale)
    PetscCall(TrsCudaScratch(workspace, TRS_CUDA_SCALES_UNSORTED, b->o.n, sizeof(*u->scale), &u->scale));
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_FEATURES, tbe->n_features, sizeof(*list), &list));
  for (int f = 0; f < tbe->n_features; f++) {
    const UpdateTable *table = &b->table[b->place[tbe->feature[f].table]];
    list[f] = {table->key_begin, table->table.rows, tbe->feature[f].out_column,
               tbe->feature[f].mean && b->pooled};
  }
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_FEATURES, stream,
                               tbe->n_features * static_cast<int64_t>(sizeof(*list)), list, &features));
  CU_LAUNCH(bag_keys_kernel, TrsCudaBlocks(n_bags << lanes_log2, TRS_KEY_THREADS), TRS_KEY_THREADS, 0,
            TrsCudaStream(stream), features, tbe->n_features, *input, b->end_key, static_cast<int>(b->pooled),
            b->grad_stride, lanes_log2, *u);
  TrsCheckLaunch();
  PetscCall(TrsCudaSortPairs(workspace, stream, b->o.n, bits_for(b->end_key), u->key, b->o.key, u->item,
                             u->sorted_item));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Runs, their pieces and the classes' runs from the sorted keys. */
static PetscErrorCode find_runs(TrsStream stream, TrsWorkspace workspace, Backward *b)
{
  const dim3 blocks = TrsCudaBlocks(b->o.n + 1, TRS_KEY_THREADS);
  const cudaStream_t s = TrsCudaStream(stream);
  int *boundary, *boundaries;

  PetscFunctionBegin;
  CU_LAUNCH(run_flags_kernel, blocks, TRS_KEY_THREADS, 0, s, b->o, b->u, b->end_key);
  TrsCheckLaunch();
  PetscCall(TrsCudaScan(stream, b->o.n, b->o.flags, b->o.before));
  CU_LAUNCH(run_begin_kernel, blocks, TRS_KEY_THREADS, 0, s, b->o, b->end_key);
  CU_LAUNCH(piece_counts_kernel, blocks, TRS_KEY_THREADS, 0, s, b->o);
  TrsCheckLaunch();
  PetscCall(TrsCudaScan(stream, b->o.n, b->o.flags, b->o.piece_begin));
  /* in_order: where each table's runs begin, among them the classes' */
  const int n = b->in_order ? b->tbe->n_tables : b->n_classes;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_LOOKUP, n + 1, sizeof(*boundary), &boundary));
  for (int i = 0; i < n; i++) boundary[i] = b->in_order ? i : b->classes[i].first_table;
  boundary[n] = b->tbe->n_tables;
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_CLASSES, stream,
                               (n + 1) * static_cast<int64_t>(sizeof(*boundary)), boundary, &boundaries));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_CLASS_RUNS, n + 1, sizeof(*b->class_run), &b->class_run));
  CU_LAUNCH(runs_at_kernel, TrsCudaBlocks(n + 1, TRS_KEY_THREADS), TRS_KEY_THREADS, 0, s, b->o, n + 1,
            boundaries, b->class_run);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode upload_tables(TrsStream stream, TrsWorkspace workspace, Backward *b)
{
  PetscFunctionBegin;
  b->o.n_tables = b->tbe->n_tables;
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_TABLES, stream,
                               (b->o.n_tables + 1) * static_cast<int64_t>(sizeof(*b->table)), b->table,
                               &b->o.table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- launches for each class --- */

template <TrsDType DTYPE, int COLUMNS>
static PetscErrorCode launch_update(TrsStream stream, const Backward *b, int c, const Step &step)
{
  const int lanes_log2 = b->classes[c].key % 6, D = (b->classes[c].widest + 3) / 4 * 4;
  const bool lamb = step.args.kind == TRS_OPTIM_LAMB || step.args.kind == TRS_OPTIM_PARTIAL_ROWWISE_LAMB;
  const int group_floats = lamb ? 2 * D : D;
  int threads = TRS_UPDATE_THREADS, bytes, most, device;

  PetscFunctionBegin;
  while (threads > 32 && (threads >> lanes_log2) * group_floats * 4 > TRS_SHARED_PLAIN) threads /= 2;
  bytes = (threads >> lanes_log2) * group_floats * 4;
  if (bytes > TRS_SHARED_PLAIN) {
    TrsCallCUDA(cudaGetDevice(&device));
    TrsCallCUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    PetscCheck(bytes <= most, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
               "a shard of %d columns is wider than this GPU's update takes (%d): cut the table by columns",
               b->classes[c].widest, most / (lamb ? 8 : 4));
    TrsCallCUDA(cudaFuncSetAttribute(update_kernel<DTYPE, COLUMNS>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  }
  CU_LAUNCH((update_kernel<DTYPE, COLUMNS>), TrsCudaBlocks(b->o.n << lanes_log2, threads),
            static_cast<unsigned>(threads), static_cast<size_t>(bytes), TrsCudaStream(stream), b->o,
            b->class_run + c, lanes_log2, group_floats, lamb ? D : 0, step);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sums of pieces: at most one for each SHORT_RUN / 2 occurrences. */
static PetscErrorCode launch_pieces(TrsStream stream, const Backward *b, const UpdateClass *class_,
                                    const int64_t *class_run)
{
  const int lanes_log2 = class_->key % 6;
  const dim3 blocks = TrsCudaBlocks((b->o.n / (TRS_SHORT_RUN / 2)) << lanes_log2, TRS_UPDATE_THREADS);

  PetscFunctionBegin;
  if (b->o.n <= TRS_SHORT_RUN) PetscFunctionReturn(PETSC_SUCCESS);
  if (class_->key / 6 % 2)
    CU_LAUNCH((piece_sums_kernel<4>), blocks, TRS_UPDATE_THREADS, 0, TrsCudaStream(stream), b->o, class_run,
              lanes_log2);
  else
    CU_LAUNCH((piece_sums_kernel<1>), blocks, TRS_UPDATE_THREADS, 0, TrsCudaStream(stream), b->o, class_run,
              lanes_log2);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode update_classes(TrsStream stream, const Backward *b, const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  for (int c = 0; c < b->n_classes; c++) {
    const TrsSparseOptimizerArgs *own = &args[b->classes[c].optimizer];
    const double t = static_cast<double>(own->step);
    const Step step = {*own, static_cast<float>(1.0 - pow(static_cast<double>(own->beta1), t)),
                       static_cast<float>(1.0 - pow(static_cast<double>(own->beta2), t))};

    PetscCall(launch_pieces(stream, b, &b->classes[c], b->class_run + c));
    switch (b->classes[c].key / 6) {
    case 2 * TRS_FP32: PetscCall((launch_update<TRS_FP32, 1>)(stream, b, c, step)); break;
    case 2 * TRS_FP32 + 1: PetscCall((launch_update<TRS_FP32, 4>)(stream, b, c, step)); break;
    case 2 * TRS_FP16: PetscCall((launch_update<TRS_FP16, 1>)(stream, b, c, step)); break;
    case 2 * TRS_FP16 + 1: PetscCall((launch_update<TRS_FP16, 4>)(stream, b, c, step)); break;
    case 2 * TRS_BF16: PetscCall((launch_update<TRS_BF16, 1>)(stream, b, c, step)); break;
    default: PetscCall((launch_update<TRS_BF16, 4>)(stream, b, c, step)); break;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- slots --- */

/* Sorted occurrences and runs of a batch. */
static PetscErrorCode prepare(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                              const float *grad, float max_gradient, Backward *b)
{
  bool scaled = input->weights != NULL;

  PetscFunctionBegin;
  for (int f = 0; f < b->tbe->n_features; f++) scaled = scaled || b->tbe->feature[f].mean;
  b->o.grad = grad;
  b->o.max_gradient = max_gradient;
  PetscCall(order_tables(workspace, grad, b));
  PetscCall(reserve(workspace, input->n_values, scaled && b->pooled, &b->o, b->widest));
  PetscCall(upload_tables(stream, workspace, b));
  PetscCall(sort_batch(stream, workspace, input, b));
  PetscCall(find_runs(stream, workspace, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                               const TrsTbeInput *input, bool pooled, const float *grad, int64_t grad_stride,
                               float max_gradient, const TrsSparseOptimizerArgs *args)
{
  Backward b = {};

  PetscFunctionBegin;
  if (input->n_values <= 0 || tbe->n_tables <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  b.tbe = tbe;
  b.pooled = pooled;
  b.grad_stride = grad_stride;
  PetscCall(prepare(stream, workspace, input, grad, max_gradient, &b));
  PetscCall(update_classes(stream, &b, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeBackwardCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                  const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                  float max_gradient, const TrsSparseOptimizerArgs *args, float *grad_weights)
{
  PetscFunctionBegin;
  if (grad_weights && input->n_values > 0)
    PetscCall(TrsTbeWeightGradientsCuda(stream, workspace, tbe, input, grad, grad_stride, grad_weights));
  PetscCall(backward(stream, workspace, tbe, input, true, grad, grad_stride, max_gradient, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeBackwardRowsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                      const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                      float max_gradient, const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  PetscCall(backward(stream, workspace, tbe, input, false, grad, grad_stride, max_gradient, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Waits for the numbers of rows. NOLINTNEXTLINE(readability-function-size): the slot's parameters */
PetscErrorCode TrsTbeRowGradientsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                      const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                      float max_gradient, int64_t *row_begin, int64_t *rows, float *row_grad,
                                      int64_t row_stride)
{
  Backward b = {};

  PetscFunctionBegin;
  memset(row_begin, 0, static_cast<size_t>(tbe->n_tables + 1) * sizeof(*row_begin));
  if (input->n_values <= 0 || tbe->n_tables <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  b.tbe = tbe;
  b.pooled = b.in_order = true;
  b.grad_stride = grad_stride;
  PetscCall(prepare(stream, workspace, input, grad, max_gradient, &b));
  for (int t = 0; t < tbe->n_tables; t++) { /* table by table: few tables are data_parallel */
    UpdateClass one = {0, 0, t, t + 1, b.table[t].table.dim};

    for (int c = 0; c < b.n_classes; c++)
      if (b.classes[c].first_table <= t && t < b.classes[c].end_table) one.key = b.classes[c].key;
    const int lanes_log2 = one.key % 6;
    const dim3 blocks = TrsCudaBlocks(b.o.n << lanes_log2, TRS_UPDATE_THREADS);
    PetscCall(launch_pieces(stream, &b, &one, b.class_run + t));
    if (one.key / 6 % 2)
      CU_LAUNCH((list_kernel<4>), blocks, TRS_UPDATE_THREADS, 0, TrsCudaStream(stream), b.o, b.class_run + t,
                lanes_log2, rows, row_grad, row_stride);
    else
      CU_LAUNCH((list_kernel<1>), blocks, TRS_UPDATE_THREADS, 0, TrsCudaStream(stream), b.o, b.class_run + t,
                lanes_log2, rows, row_grad, row_stride);
    TrsCheckLaunch();
  }
  PetscCall(TrsCudaAnswer(workspace, stream, (tbe->n_tables + 1) * static_cast<int64_t>(sizeof(*row_begin)),
                          b.class_run, row_begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeUpdateRowsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbeTable *table,
                                    int64_t n, const int64_t *rows, const int64_t *index, const float *grad,
                                    int64_t grad_stride, const TrsSparseOptimizerArgs *args)
{
  const TrsTbe tbe = {1, 0, table, nullptr};
  Backward b = {};

  PetscFunctionBegin;
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  b.tbe = &tbe;
  b.grad_stride = grad_stride;
  b.o.grad = grad;
  PetscCall(order_tables(workspace, grad, &b));
  PetscCall(reserve(workspace, n, false, &b.o, b.widest));
  PetscCall(upload_tables(stream, workspace, &b));
  CU_LAUNCH(row_keys_kernel, TrsCudaBlocks(n, TRS_KEY_THREADS), TRS_KEY_THREADS, 0, TrsCudaStream(stream),
            rows, index, grad_stride, b.o);
  TrsCheckLaunch();
  PetscCall(find_runs(stream, workspace, &b));
  PetscCall(update_classes(stream, &b, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}
