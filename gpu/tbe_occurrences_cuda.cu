/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Keys, sort, runs and pieces of the rows that a batch touches; classes of their tables.

  Bytes moved for N occurrences: about 16 N a pass of the sort (24 N if the tables have 2^32 rows or
  more), with bits / 8 passes. Scratch: 100 N bytes and N / 32 rows of sums.

  Source: FBGEMM transpose_embedding_input
*/
#include "gpu/scan_cuda.h"
#include "gpu/tbe_occurrences_cuda.h"
#include "gpu/tbe_rows_cuda.h"

enum { TRS_KEY_THREADS = 256 };

/* A feature on the device. */
struct UpdateFeature {
  int64_t key_begin, rows; /* first key and rows of the feature's table */
  int64_t out_column;
  int64_t mean;
};

/* --- keys --- */

static __device__ __forceinline__ void set_key(const Unsorted &u, int64_t i, uint64_t key)
{
  if (u.key_32)
    u.key_32[i] = static_cast<uint32_t>(key);
  else
    u.key[i] = key;
  u.item[i] = static_cast<uint32_t>(i);
}

/*
  Give a key behind all rows to a value that is in no bag of the call. Values of a view's other
  features lie before and behind those of the call.
*/
static __device__ __forceinline__ void pass_over(const Unsorted &u, int64_t i, uint64_t end_key)
{
  set_key(u, i, end_key);
  if (u.source) u.source[i] = 0;
  if (u.scale) u.scale[i] = 0.0f;
}

/* One group of lanes a bag. Ids that are not rows get a key behind all rows. */
static __global__ void bag_keys_kernel(const UpdateFeature *features, int n_features, TrsTbeInput input,
                                       uint64_t end_key, int pooled, int64_t grad_stride, int lanes_log2,
                                       Unsorted u)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);

  for (int64_t i = TrsCudaFirst(); i < input.offsets[0]; i += TrsCudaStep()) pass_over(u, i, end_key);
  for (int64_t i = input.offsets[n_features * input.batch] + TrsCudaFirst(); i < input.n_values;
       i += TrsCudaStep())
    pass_over(u, i, end_key);
  for (int64_t bag = TrsCudaFirst() >> lanes_log2; bag < n_features * input.batch;
       bag += TrsCudaStep() >> lanes_log2) {
    const UpdateFeature f = features[bag / input.batch];
    const int64_t begin = input.offsets[bag], end = input.offsets[bag + 1];
    const float share = f.mean && end > begin ? 1.0f / static_cast<float>(end - begin) : 1.0f;
    const int64_t place = bag % input.batch * grad_stride + f.out_column;

    for (int64_t i = begin + lane; i < end; i += lanes) {
      const int64_t id = input.values[i];

      set_key(u, i,
              static_cast<uint64_t>(id) < static_cast<uint64_t>(f.rows)
                  ? static_cast<uint64_t>(f.key_begin + id)
                  : end_key);
      if (u.source) u.source[i] = pooled ? place : i * grad_stride;
      if (u.scale) u.scale[i] = input.weights ? input.weights[i] * share : share;
    }
  }
}

/* Keys are given in sorted order; NULL: 0, 1, .. */
static __global__ void given_keys_kernel(const int64_t *keys, const int64_t *index, int64_t grad_stride,
                                         Occurrences o)
{
  for (int64_t i = TrsCudaFirst(); i < o.runs.n; i += TrsCudaStep()) {
    o.runs.key[i] = static_cast<uint64_t>(keys ? keys[i] : i);
    o.source[i] = (index ? index[i] : i) * grad_stride;
  }
}

/* --- runs and pieces --- */

/*
  Bring sources and scales into the order of the keys, so that the sums do not read the items. Also
  find the locations of the runs' rows.
*/
static __global__ void follow_kernel(Occurrences o, Unsorted u, const int32_t *locations)
{
  for (int64_t i = TrsCudaFirst(); i < o.runs.n; i += TrsCudaStep()) {
    const uint32_t item = u.sorted_item[i];

    o.source[i] = u.source[item];
    if (o.scale) o.scale[i] = u.scale[item];
    if (o.location && o.runs.flags[i]) o.location[o.runs.before[i]] = locations[item];
  }
}

static __global__ void piece_counts_kernel(Occurrences o)
{
  for (int64_t r = TrsCudaFirst(); r < o.runs.n; r += TrsCudaStep()) {
    int32_t count = 0;

    if (r < o.runs.before[o.runs.n]) {
      const int64_t length = o.runs.begin[r + 1] - o.runs.begin[r];
      if (length > TRS_SHORT_RUN)
        count = static_cast<int32_t>((length + piece_length(length) - 1) / piece_length(length));
    }
    o.runs.flags[r] = count;
  }
}

/*
  Find the first run whose key is not below each of n boundaries. The first and the last boundary
  need no search.
*/
static __global__ void runs_at_kernel(Occurrences o, int n, const int *boundary_table, int64_t *run)
{
  for (int64_t c = TrsCudaFirst(); c < n; c += TrsCudaStep()) {
    const uint64_t key = static_cast<uint64_t>(o.table[boundary_table[c]].key_begin);
    const int64_t n_runs = o.runs.before[o.runs.n];
    int64_t low = boundary_table[c] == o.n_tables ? n_runs : 0, high = key == 0 ? 0 : n_runs;

    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (o.runs.key_of[middle] < key)
        low = middle + 1;
      else
        high = middle;
    }
    run[c] = low;
  }
}

/* --- host: classes of tables --- */

/* Does a lane take 16 bytes of the table's rows at once? */
static bool is_aligned(const TrsTbeTable *table)
{
  return table->dim % TrsCudaColumns(table->dtype, true) == 0 &&
         TrsCudaIsAligned(table->weight, table->stride * TrsDTypeBytes(table->dtype), 16) &&
         TrsCudaIsAligned(table->state[0], 0, 16) && TrsCudaIsAligned(table->state[1], 0, 16);
}

/* Are the gradients of such rows aligned, too? */
static bool are_gradients_aligned(const Backward *b)
{
  bool aligned = TrsCudaIsAligned(b->o.grad, b->grad_stride * 4, 16);

  for (int f = 0; b->pooled && f < b->tbe->n_features; f++)
    aligned = aligned && (b->tbe->feature[f].out_column % 4 == 0 ||
                          !is_aligned(&b->tbe->table[b->tbe->feature[f].table]));
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

/* Sort the tables by their keys, and find the classes. */
static PetscErrorCode order_tables(TrsWorkspace workspace, Backward *b)
{
  enum { N_KEYS = TRS_N_DTYPES * 12 };
  const int n = b->tbe->n_tables;
  bool used[N_KEYS] = {};
  int n_optimizers = 1;
  int *key;
  char *room;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_TABLES, n + 1, sizeof(*b->table), &b->table));
  /* with padding, which is compared with the last upload */
  memset(b->table, 0, static_cast<size_t>(n + 1) * sizeof(*b->table));
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_CLASSES, n, sizeof(*b->classes) + 2 * sizeof(int), &room));
  b->classes = reinterpret_cast<UpdateClass *>(room);
  b->place = reinterpret_cast<int *>(b->classes + n);
  key = b->place + n;
  b->o.grad_aligned = are_gradients_aligned(b);
  for (int t = 0; t < n; t++) {
    const TrsTbeTable *table = &b->tbe->table[t];
    const bool aligned = is_aligned(table);

    PetscCheck(table->dtype == TRS_FP32 || table->dtype == TRS_FP16 || table->dtype == TRS_BF16,
               PETSC_COMM_SELF, TRS_ERR_INTERNAL, "tables of %s cannot be trained",
               TrsDTypeName(table->dtype));
    key[t] = static_cast<int>(table->dtype) * 12 + aligned * 6 +
             TrsCudaLanesLog2(table->dim, TrsCudaColumns(table->dtype, aligned));
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
  o->sums_stride = (widest + 3) / 4 * 4;
  PetscCall(TrsCudaReserveRuns(w, n, &o->runs));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_SOURCES, n, sizeof(*o->source), &o->source));
  if (scaled) PetscCall(TrsCudaScratch(w, TRS_CUDA_SCALES, n, sizeof(*o->scale), &o->scale));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_PIECES, n + 1, sizeof(*o->piece_begin), &o->piece_begin));
  PetscCall(TrsCudaScratch(w, TRS_CUDA_SUMS, (n / (TRS_SHORT_RUN / 2) + 1) * o->sums_stride, sizeof(*o->sums),
                           &o->sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sort the keys of all occurrences in a batch, with sources and scales if they are needed. */
static PetscErrorCode sort_batch(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                                 Backward *b)
{
  const TrsTbe *tbe = b->tbe;
  const int64_t n_bags = tbe->n_features * input->batch;
  UpdateFeature *list, *features;
  const int bits = TrsCudaBitsFor(b->end_key);
  Unsorted *u = &b->u;
  int lanes_log2 = 0;

  PetscFunctionBegin;
  PetscCheck(b->o.runs.n < UINT32_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%lld ids in one batch of one rank are more than the GPU's backward takes (2^32)",
             static_cast<long long>(b->o.runs.n));
  /* a lane for each id of a bag */
  while (lanes_log2 < 5 && n_bags << lanes_log2 < input->n_values) lanes_log2++;
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_KEYS, b->o.runs.n, sizeof(*u->key), &u->key));
  if (bits <= 32) { /* keys of 32 bits take half of the same memory */
    u->key_32 = reinterpret_cast<uint32_t *>(u->key);
    b->o.runs.key_32 = reinterpret_cast<uint32_t *>(b->o.runs.key);
  }
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_ITEMS, b->o.runs.n, sizeof(*u->item), &u->item));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_ITEMS_SORTED, b->o.runs.n, sizeof(*u->sorted_item),
                           &u->sorted_item));
  if (b->o.source)
    PetscCall(
        TrsCudaScratch(workspace, TRS_CUDA_SOURCES_UNSORTED, b->o.runs.n, sizeof(*u->source), &u->source));
  if (b->o.scale)
    PetscCall(TrsCudaScratch(workspace, TRS_CUDA_SCALES_UNSORTED, b->o.runs.n, sizeof(*u->scale), &u->scale));
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
  if (u->key_32)
    PetscCall(TrsCudaSortPairs(workspace, stream, b->o.runs.n, bits, u->key_32, b->o.runs.key_32, u->item,
                               u->sorted_item));
  else
    PetscCall(TrsCudaSortPairs(workspace, stream, b->o.runs.n, bits, u->key, b->o.runs.key, u->item,
                               u->sorted_item));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find where the classes' runs begin and, with by_table, where each table's runs begin. */
static PetscErrorCode find_class_runs(TrsStream stream, TrsWorkspace workspace, Backward *b)
{
  const int n_tables = b->tbe->n_tables, n = b->n_classes + 1 + (b->by_table ? n_tables + 1 : 0);
  int *boundary, *boundaries;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_LOOKUP, n, sizeof(*boundary), &boundary));
  for (int c = 0; c < b->n_classes; c++) boundary[c] = b->classes[c].first_table;
  boundary[b->n_classes] = n_tables;
  for (int i = b->n_classes + 1; i < n; i++) boundary[i] = i - b->n_classes - 1;
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_CLASSES, stream,
                               n * static_cast<int64_t>(sizeof(*boundary)), boundary, &boundaries));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_CLASS_RUNS, n, sizeof(*b->class_run), &b->class_run));
  b->table_run = b->class_run + b->n_classes + 1;
  CU_LAUNCH(runs_at_kernel, TrsCudaBlocks(n, TRS_KEY_THREADS), TRS_KEY_THREADS, 0, TrsCudaStream(stream),
            b->o, n, boundaries, b->class_run);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the pieces of the runs, and the runs of the classes. */
static PetscErrorCode cut_runs(TrsStream stream, TrsWorkspace workspace, Backward *b)
{
  PetscFunctionBegin;
  CU_LAUNCH(piece_counts_kernel, TrsCudaBlocks(b->o.runs.n, TRS_KEY_THREADS), TRS_KEY_THREADS, 0,
            TrsCudaStream(stream), b->o);
  TrsCheckLaunch();
  PetscCall(TrsCudaScan(stream, b->o.runs.n, b->o.runs.flags, b->o.piece_begin));
  PetscCall(find_class_runs(stream, workspace, b));
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

/* Are some of the rows in a cache? */
static bool is_cached(const TrsTbe *tbe, const TrsTbeInput *input)
{
  bool cached = false;

  for (int t = 0; input->locations && t < tbe->n_tables; t++) cached = cached || tbe->table[t].lines;
  return cached;
}

PetscErrorCode TrsCudaFindOccurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                                      Backward *b)
{
  const int64_t n = input->n_values;
  bool scaled = input->weights != NULL;

  PetscFunctionBegin;
  for (int f = 0; f < b->tbe->n_features; f++) scaled = scaled || b->tbe->feature[f].mean;
  PetscCall(order_tables(workspace, b));
  PetscCall(reserve(workspace, n, scaled && b->pooled, &b->o, b->widest));
  if (is_cached(b->tbe, input))
    PetscCall(TrsCudaScratch(workspace, TRS_CUDA_LOCATIONS, n, sizeof(*b->o.location), &b->o.location));
  PetscCall(upload_tables(stream, workspace, b));
  PetscCall(sort_batch(stream, workspace, input, b));
  PetscCall(TrsCudaFindRuns(stream, b->end_key, &b->o.runs));
  CU_LAUNCH(follow_kernel, TrsCudaBlocks(n, TRS_KEY_THREADS), TRS_KEY_THREADS, 0, TrsCudaStream(stream), b->o,
            b->u, input->locations);
  TrsCheckLaunch();
  PetscCall(cut_runs(stream, workspace, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaGivenOccurrences(TrsStream stream, TrsWorkspace workspace, int64_t n,
                                       const int64_t *keys, const int64_t *index, Backward *b)
{
  PetscFunctionBegin;
  b->in_order = true;
  PetscCall(order_tables(workspace, b));
  PetscCall(reserve(workspace, n, false, &b->o, b->widest));
  PetscCall(upload_tables(stream, workspace, b));
  CU_LAUNCH(given_keys_kernel, TrsCudaBlocks(n, TRS_KEY_THREADS), TRS_KEY_THREADS, 0, TrsCudaStream(stream),
            keys, index, b->grad_stride, b->o);
  TrsCheckLaunch();
  PetscCall(TrsCudaFindRuns(stream, b->end_key, &b->o.runs));
  PetscCall(cut_runs(stream, workspace, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaFindRows(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                               Backward *b)
{
  PetscFunctionBegin;
  b->in_order = b->by_table = true;
  PetscCall(order_tables(workspace, b));
  PetscCall(TrsCudaReserveRuns(workspace, input->n_values, &b->o.runs));
  PetscCall(upload_tables(stream, workspace, b));
  PetscCall(sort_batch(stream, workspace, input, b));
  PetscCall(TrsCudaFindRuns(stream, b->end_key, &b->o.runs));
  PetscCall(find_class_runs(stream, workspace, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}
