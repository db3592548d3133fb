/* SPDX-License-Identifier: BSD-3-Clause */
/*
  For the rows that a batch touches: make keys, sort them, and find runs and pieces. For the tables
  of these rows: find classes (tbe_occurrences_cuda.h).

  Bytes moved for N occurrences: 16 N per pass of the sort, 8 N more if the tables have 2^32 rows or
  more, and 8 N more if gradients have factors. Scratch: 12 N to 24 N bytes and the sort's own
  scratch memory. The data kept for the update has 20 N bytes, or 24 N with factors.

  Source: FBGEMM transpose_embedding_input
*/
#include "gpu/compute_cuda.h"
#include "gpu/scan_cuda.h"
#include "gpu/tbe/tbe_occurrences_cuda.h"
#include "gpu/tbe/tbe_rows_cuda.h"

#include <cub/cub.cuh>
#include <iterator>

enum { TRS_KEY_THREADS = 256 };

/* A feature on the device. */
struct UpdateFeature {
  int64_t key_begin, rows; /* the table's first key, and its number of rows */
  int64_t mean;
};

/* The occurrences before they are sorted, in the order of the batch. */
struct Unsorted {
  uint64_t *key;
  uint32_t *key_32; /* used instead of key if all keys fit in 32 bits */
  uint32_t *place;
  uint64_t *scaled_place; /* as in Occurrences.scaled_place */
};

/* --- keys --- */

/* upper is the upper half of a scaled place. */
static __device__ __forceinline__ void put(const Unsorted &u, int64_t i, uint64_t key, uint32_t place,
                                           uint32_t upper)
{
  if (u.key_32)
    u.key_32[i] = static_cast<uint32_t>(key);
  else
    u.key[i] = key;
  if (u.scaled_place)
    u.scaled_place[i] = static_cast<uint64_t>(upper) << 32 | place;
  else
    u.place[i] = place;
}

/*
  One group of lanes per bag. An id that is not a row gets a key above all rows. A value that is in
  no bag of the call also gets such a key: if the input is a view of some features, the values of
  other features precede and follow it.
*/
static __global__ void bag_keys_kernel(const UpdateFeature *features, int n_features, TrsTbeInput input,
                                       uint64_t end_key, bool by_id, int bag_bits, int lanes_log2, Unsorted u)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);

  for (int64_t i = TrsCudaFirst(); i < input.offsets[0]; i += TrsCudaStep()) put(u, i, end_key, 0, 0);
  for (int64_t i = input.offsets[n_features * input.batch] + TrsCudaFirst(); i < input.n_values;
       i += TrsCudaStep())
    put(u, i, end_key, 0, 0);
  for (int64_t bag = TrsCudaFirst() >> lanes_log2; bag < n_features * input.batch;
       bag += TrsCudaStep() >> lanes_log2) {
    const int64_t feature = bag / input.batch;
    const UpdateFeature f = features[feature];
    const int64_t begin = input.offsets[bag], end = input.offsets[bag + 1];
    const float share = f.mean && end > begin ? 1.0f / static_cast<float>(end - begin) : 1.0f;
    const int64_t place = feature << bag_bits | (bag - feature * input.batch);

    for (int64_t i = begin + lane; i < end; i += lanes) {
      const int64_t id = input.values[i];
      const bool is_row = static_cast<uint64_t>(id) < static_cast<uint64_t>(f.rows);
      const float scale = input.weights ? input.weights[i] * share : share;

      put(u, i, is_row ? static_cast<uint64_t>(f.key_begin + id) : end_key,
          static_cast<uint32_t>(by_id ? i : place),
          input.weights_later ? static_cast<uint32_t>(i) : __float_as_uint(scale));
    }
  }
}

/* keys must be sorted. If keys is NULL, the keys are 0, 1, 2 and so on. */
static __global__ void given_keys_kernel(int64_t n, const int64_t *keys, const int64_t *index,
                                         uint64_t *sorted, uint32_t *place)
{
  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep()) {
    sorted[i] = static_cast<uint64_t>(keys ? keys[i] : i);
    place[i] = static_cast<uint32_t>(index ? index[i] : i);
  }
}

/* --- runs and pieces --- */

/* Counts of runs that the kernels and CUB exchange on the device. */
struct RunCounts {
  uint32_t distinct; /* number of distinct keys; the last of them may be end_key */
  uint32_t runs;
};

/*
  Find the end of the last run. For each of n boundaries, find the first run whose key is not below
  the boundary.
*/
static __global__ void ends_kernel(Occurrences o, RunCounts *count, uint64_t end_key, int n,
                                   const uint64_t *boundary, int64_t *run)
{
  const uint32_t distinct = count->distinct, runs = distinct - (o.key_of[distinct - 1] >= end_key);

  if (TrsCudaFirst() == 0) {
    if (runs == distinct) o.begin[runs] = static_cast<uint32_t>(o.n);
    count->runs = runs;
  }
  for (int64_t c = TrsCudaFirst(); c < n; c += TrsCudaStep()) {
    uint32_t low = 0, high = runs;

    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (o.key_of[middle] < boundary[c])
        low = middle + 1;
      else
        high = middle;
    }
    run[c] = low;
  }
}

/* A sequence that CUB's algorithms read in order. Element i is FUNCTION(i). */
template <class FUNCTION> struct Computed {
  using iterator_category = std::random_access_iterator_tag;
  using value_type = uint32_t;
  using difference_type = int64_t;
  using pointer = const uint32_t *;
  using reference = uint32_t;
  FUNCTION function;
  int64_t at;

  __host__ __device__ uint32_t operator[](int64_t i) const
  {
    return function(at + i);
  }
  __host__ __device__ uint32_t operator*() const
  {
    return function(at);
  }
  __host__ __device__ Computed operator+(int64_t i) const
  {
    return {function, at + i};
  }
};

struct ItsNumber {
  __host__ __device__ uint32_t operator()(int64_t i) const
  {
    return static_cast<uint32_t>(i);
  }
};

/* The number of pieces of a run. It is 0 for a short run and after the last run. */
struct Pieces {
  const uint32_t *begin;
  const RunCounts *count;

  __host__ __device__ uint32_t operator()(int64_t r) const
  {
    if (r >= count->runs) return 0;
    const int64_t length = static_cast<int64_t>(begin[r + 1]) - begin[r];
    return length <= TRS_SHORT_RUN
               ? 0
               : static_cast<uint32_t>((length + piece_length(length) - 1) / piece_length(length));
  }
};

/* --- host: classes of tables --- */

/* True if a lane can read 16 bytes of the table's rows at once. */
static bool is_aligned(const TrsTbeTable *table)
{
  return table->dim % TrsCudaColumns(table->dtype, true) == 0 &&
         TrsCudaIsAligned(table->weight, table->stride * TrsDTypeBytes(table->dtype), 16) &&
         TrsCudaIsAligned(table->state[0], 0, 16) && TrsCudaIsAligned(table->state[1], 0, 16);
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
    b->order = (b->order ^ static_cast<uint64_t>(at)) * 0x100000001b3;
  }
  last->end_table = at + 1;
  last->widest = PetscMax(last->widest, b->tbe->table[t].dim);
  b->widest = PetscMax(b->widest, last->widest);
  b->place[t] = at;
  b->order = (b->order ^ static_cast<uint64_t>(t)) * 0x100000001b3;
  table->table = b->tbe->table[t];
  table->key_begin = static_cast<int64_t>(b->end_key);
  b->end_key += static_cast<uint64_t>(b->tbe->table[t].rows);
  table[1] = {};
  table[1].key_begin = static_cast<int64_t>(b->end_key);
}

/*
  Sort the tables by key, and find their classes. With in_order, the tables keep their order and
  form more classes.
*/
static PetscErrorCode order_tables(TrsWorkspace workspace, bool in_order, Backward *b)
{
  enum { N_KEYS = TRS_N_DTYPES * 12 };
  const int n = b->tbe->n_tables;
  bool used[N_KEYS] = {};
  int n_optimizers = 1;
  int *key;
  char *room;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_TABLES, n + 1, sizeof(*b->table), &b->table));
  /* also clear the padding, because the array is compared with the last upload */
  memset(b->table, 0, static_cast<size_t>(n + 1) * sizeof(*b->table));
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_CLASSES, n, sizeof(*b->classes) + 2 * sizeof(int), &room));
  b->classes = reinterpret_cast<UpdateClass *>(room);
  b->place = reinterpret_cast<int *>(b->classes + n);
  key = b->place + n;
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
    if (in_order) add_table(b, t, key[t]);
  }
  for (int k = 0; k < N_KEYS && !in_order; k++)
    for (int o = 0; o < n_optimizers && used[k]; o++)
      for (int t = 0; t < n; t++)
        if (key[t] == k && b->tbe->table[t].optimizer == o) add_table(b, t, k);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- sort and runs --- */

/*
  From sorted keys, find the runs, the pieces of each run, and the runs of each class. The results
  are stored in `keep`.
*/
template <class Key>
static PetscErrorCode find_runs(TrsStream stream, TrsWorkspace keep, TrsWorkspace scratch, const Key *sorted,
                                Backward *b)
{
  const bool by_table = b->use == TRS_TBE_LISTS;
  const int n_tables = b->tbe->n_tables, n = b->n_classes + 1 + (by_table ? n_tables + 1 : 0);
  /* CUB counts items in the type of this variable */
  const uint32_t n_keys = static_cast<uint32_t>(b->o.n);
  const Computed<ItsNumber> number = {{}, 0};
  uint64_t *boundary, *boundaries;
  RunCounts *count;
  size_t bytes = 0, more = 0;
  void *temp;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(scratch, TRS_CUDA_BOUNDS, n, sizeof(*boundary), &boundary));
  for (int c = 0; c <= b->n_classes; c++)
    boundary[c] = static_cast<uint64_t>(
        b->table[c < b->n_classes ? b->classes[c].first_table : n_tables].key_begin);
  for (int i = b->n_classes + 1; i < n; i++)
    boundary[i] = static_cast<uint64_t>(b->table[i - b->n_classes - 1].key_begin);
  PetscCall(TrsCudaUploadArray(scratch, TRS_CUDA_CLASSES, stream, n * static_cast<int64_t>(sizeof(*boundary)),
                               boundary, &boundaries));
  PetscCall(TrsCudaScratch(keep, TRS_CUDA_CLASS_RUNS, n, sizeof(*b->class_run), &b->class_run));
  PetscCall(TrsCudaScratch(scratch, TRS_CUDA_FLAGS, 1, sizeof(*count), &count));
  b->table_run = b->class_run + b->n_classes + 1;
  const Computed<Pieces> pieces = {{b->o.begin, count}, 0};
  TrsCallCUDA(cub::DeviceSelect::UniqueByKey(nullptr, bytes, sorted, number, b->o.key_of, b->o.begin,
                                             &count->distinct, n_keys, TrsCudaStream(stream)));
  TrsCallCUDA(cub::DeviceScan::ExclusiveSum(nullptr, more, pieces, b->o.piece_begin, n_keys + 1,
                                            TrsCudaStream(stream)));
  bytes = PetscMax(bytes, more);
  PetscCall(TrsCudaScratch(scratch, TRS_CUDA_SORT, static_cast<int64_t>(bytes), 1, &temp));
  CU_LIBRARY("distinct rows", stream,
             cub::DeviceSelect::UniqueByKey(temp, bytes, sorted, number, b->o.key_of, b->o.begin,
                                            &count->distinct, n_keys, TrsCudaStream(stream)));
  CU_LAUNCH(ends_kernel, TrsCudaBlocks(n, TRS_KEY_THREADS), TRS_KEY_THREADS, 0, TrsCudaStream(stream), b->o,
            count, b->end_key, n, boundaries, b->class_run);
  TrsCheckLaunch();
  CU_LIBRARY("pieces of rows", stream,
             cub::DeviceScan::ExclusiveSum(temp, bytes, pieces, b->o.piece_begin, n_keys + 1,
                                           TrsCudaStream(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reserve memory for the occurrences in the workspace `keep`. */
static PetscErrorCode reserve(TrsWorkspace keep, int64_t n, bool scaled, Occurrences *o)
{
  PetscFunctionBegin;
  o->n = n;
  PetscCall(TrsCudaScratch(keep, TRS_CUDA_RUNS, 2 * (n + 1), sizeof(*o->key_of), &o->key_of));
  o->begin = reinterpret_cast<uint32_t *>(o->key_of + n);
  o->piece_begin = o->begin + n + 1;
  if (scaled)
    PetscCall(TrsCudaScratch(keep, TRS_CUDA_PLACES, n, sizeof(*o->scaled_place), &o->scaled_place));
  else
    PetscCall(TrsCudaScratch(keep, TRS_CUDA_PLACES, n, sizeof(*o->place), &o->place));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sort the unsorted keys, and find the runs. */
template <class Key>
static PetscErrorCode sort(TrsStream stream, TrsWorkspace keep, TrsWorkspace scratch, const Key *keys,
                           const Unsorted *u, Backward *b)
{
  const int bits = TrsCudaBitsFor(b->end_key);
  Key *sorted;

  PetscFunctionBegin;
  PetscCall(TrsCudaScratch(scratch, TRS_CUDA_KEYS_SORTED, b->o.n, sizeof(*sorted), &sorted));
  if (u->scaled_place)
    PetscCall(
        TrsCudaSortPairs(scratch, stream, b->o.n, bits, keys, sorted, u->scaled_place, b->o.scaled_place));
  else
    PetscCall(TrsCudaSortPairs(scratch, stream, b->o.n, bits, keys, sorted, u->place, b->o.place));
  PetscCall(find_runs(stream, keep, scratch, sorted, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reserve memory for the unsorted occurrences. 32-bit keys need half of the memory. */
static PetscErrorCode reserve_unsorted(TrsWorkspace scratch, const Backward *b, Unsorted *u)
{
  const int64_t n = b->o.n;

  PetscFunctionBegin;
  *u = {};
  if (TrsCudaBitsFor(b->end_key) <= 32)
    PetscCall(TrsCudaScratch(scratch, TRS_CUDA_KEYS, n, sizeof(*u->key_32), &u->key_32));
  else
    PetscCall(TrsCudaScratch(scratch, TRS_CUDA_KEYS, n, sizeof(*u->key), &u->key));
  if (b->o.scaled_place)
    PetscCall(
        TrsCudaScratch(scratch, TRS_CUDA_PLACES_UNSORTED, n, sizeof(*u->scaled_place), &u->scaled_place));
  else
    PetscCall(TrsCudaScratch(scratch, TRS_CUDA_PLACES_UNSORTED, n, sizeof(*u->place), &u->place));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find a batch's sorted occurrences and runs. The tables' order must be known. */
static PetscErrorCode find(TrsStream stream, TrsWorkspace keep, TrsWorkspace scratch,
                           const TrsTbeInput *input, Backward *b)
{
  const TrsTbe *tbe = b->tbe;
  const int64_t n = input->n_values, n_bags = tbe->n_features * input->batch;
  const bool by_id = b->use == TRS_TBE_BY_ID;
  bool scaled = input->weights || input->weights_later, mean = false;
  UpdateFeature *list, *features;
  int lanes_log2 = 0;
  Unsorted u;

  PetscFunctionBegin;
  b->o = {};
  b->o.bag_bits = TrsCudaBitsFor(static_cast<uint64_t>(by_id ? n : input->batch) - 1);
  PetscCheck(n < UINT32_MAX &&
                 b->o.bag_bits + TrsCudaBitsFor(static_cast<uint64_t>(by_id ? 1 : tbe->n_features)) <= 32,
             PETSC_COMM_SELF, TRS_ERR_DATA,
             "%lld ids in %lld bags are in one batch of one rank, more than the GPU's backward takes "
             "(2^32 ids, 2^30 bags)",
             static_cast<long long>(n), static_cast<long long>(n_bags));
  for (int f = 0; f < tbe->n_features; f++) mean = mean || tbe->feature[f].mean;
  PetscCheck(!(mean && input->weights_later), PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "means with weights that are not known yet");
  PetscCall(reserve(keep, n, (scaled || mean) && !by_id, &b->o));
  PetscCall(reserve_unsorted(scratch, b, &u));
  PetscCall(TrsCudaHostScratch(scratch, TRS_CUDA_FEATURES, tbe->n_features, sizeof(*list), &list));
  for (int f = 0; f < tbe->n_features; f++) {
    const UpdateTable *table = &b->table[b->place[tbe->feature[f].table]];
    list[f] = {table->key_begin, table->table.rows, tbe->feature[f].mean && !by_id};
  }
  PetscCall(TrsCudaUploadArray(scratch, TRS_CUDA_FEATURES, stream,
                               tbe->n_features * static_cast<int64_t>(sizeof(*list)), list, &features));
  /* one lane for each id of an average bag */
  while (lanes_log2 < 5 && n_bags << lanes_log2 < n) lanes_log2++;
  CU_LAUNCH(bag_keys_kernel, TrsCudaBlocks(n_bags << lanes_log2, TRS_KEY_THREADS), TRS_KEY_THREADS, 0,
            TrsCudaStream(stream), features, tbe->n_features, *input, b->end_key, by_id, b->o.bag_bits,
            lanes_log2, u);
  TrsCheckLaunch();
  if (u.key_32)
    PetscCall(sort(stream, keep, scratch, u.key_32, &u, b));
  else
    PetscCall(sort(stream, keep, scratch, u.key, &u, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode upload_tables(TrsStream stream, TrsWorkspace workspace, Backward *b)
{
  PetscFunctionBegin;
  b->g.n_tables = b->tbe->n_tables;
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_TABLES, stream,
                               (b->g.n_tables + 1) * static_cast<int64_t>(sizeof(*b->table)), b->table,
                               &b->g.table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- occurrences that are kept --- */

/* The occurrences of a batch, and the data on which they depend. */
struct TrsTbeOccurrencesImpl {
  TrsWorkspace memory;
  TrsTbeUse use;
  int n_classes;
  uint64_t end_key, order;
  int64_t *class_run, *table_run;
  bool weights_later;
  Occurrences o;
};

PetscErrorCode TrsTbeFindOccurrencesCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                         const TrsTbeInput *input, TrsTbeUse use,
                                         TrsTbeOccurrences *occurrences)
{
  Backward b = {};
  TrsTbeOccurrences kept;

  PetscFunctionBegin;
  if (!*occurrences) {
    PetscCall(PetscNew(occurrences));
    PetscCall(TrsWorkspaceCreateCuda(&(*occurrences)->memory));
  }
  kept = *occurrences;
  kept->o.n = 0;
  if (input->n_values <= 0 || tbe->n_tables <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  b.tbe = tbe;
  b.use = use;
  PetscCall(order_tables(workspace, use == TRS_TBE_LISTS, &b));
  PetscCall(find(stream, kept->memory, workspace, input, &b));
  kept->use = use;
  kept->n_classes = b.n_classes;
  kept->end_key = b.end_key;
  kept->order = b.order;
  kept->weights_later = input->weights_later && b.o.scaled_place;
  kept->class_run = b.class_run;
  kept->table_run = b.table_run;
  kept->o = b.o;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeOccurrencesDestroyCuda(TrsTbeOccurrences *occurrences)
{
  PetscFunctionBegin;
  if (!*occurrences) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsWorkspaceDestroyCuda(&(*occurrences)->memory));
  PetscCall(PetscFree(*occurrences));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Use occurrences that were found before. Some payloads sort the ids before they know the memory of
  the tables. If the alignment of this memory leads to other classes, *taken is false, and the ids
  must be sorted again.
*/
static PetscErrorCode take(const TrsTbeInput *input, Backward *b, bool *taken)
{
  const TrsTbeOccurrences kept = input->occurrences;

  PetscFunctionBegin;
  PetscCheck(kept->o.n == input->n_values && kept->use == b->use && kept->end_key == b->end_key,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "occurrences of another batch, or for another use");
  *taken = kept->order == b->order && kept->n_classes == b->n_classes;
  if (!*taken) PetscFunctionReturn(PETSC_SUCCESS);
  b->o = kept->o;
  if (kept->weights_later) b->o.weights = input->weights;
  b->class_run = kept->class_run;
  b->table_run = kept->table_run;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- occurrences of a call --- */

PetscErrorCode TrsCudaOccurrences(TrsStream stream, TrsWorkspace workspace, const TrsTbeInput *input,
                                  Backward *b)
{
  bool taken = false;

  PetscFunctionBegin;
  PetscCall(order_tables(workspace, b->use == TRS_TBE_LISTS, b));
  if (input->occurrences) PetscCall(take(input, b, &taken));
  if (!taken) PetscCall(find(stream, workspace, workspace, input, b));
  PetscCall(upload_tables(stream, workspace, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaGivenOccurrences(TrsStream stream, TrsWorkspace workspace, int64_t n,
                                       const int64_t *keys, const int64_t *index, Backward *b)
{
  uint64_t *sorted;

  PetscFunctionBegin;
  PetscCheck(n <= INT32_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%lld rows in one update of one rank are more than a GPU takes (2^31)",
             static_cast<long long>(n));
  b->use = TRS_TBE_BY_ID;
  PetscCall(order_tables(workspace, true, b));
  PetscCall(reserve(workspace, n, false, &b->o));
  b->o.bag_bits = 31;
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_KEYS_SORTED, n, sizeof(*sorted), &sorted));
  PetscCall(upload_tables(stream, workspace, b));
  CU_LAUNCH(given_keys_kernel, TrsCudaBlocks(n, TRS_KEY_THREADS), TRS_KEY_THREADS, 0, TrsCudaStream(stream),
            n, keys, index, sorted, b->o.place);
  TrsCheckLaunch();
  PetscCall(find_runs(stream, workspace, workspace, sorted, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* For rows that a lane reads 16 bytes at once, check that their gradients are aligned as well. */
static bool are_gradients_aligned(const Backward *b)
{
  bool aligned = TrsCudaIsAligned(b->g.grad, b->g.stride * 4, 16);

  for (int f = 0; b->use != TRS_TBE_BY_ID && f < b->tbe->n_features; f++)
    aligned = aligned && (b->tbe->feature[f].out_column % 4 == 0 ||
                          !is_aligned(&b->tbe->table[b->tbe->feature[f].table]));
  return aligned;
}

PetscErrorCode TrsCudaGradients(TrsStream stream, TrsWorkspace workspace, TrsMatrix grad, Backward *b)
{
  const bool by_id = b->use == TRS_TBE_BY_ID;
  const int64_t n = by_id ? 1 : b->tbe->n_features;
  int64_t *columns;

  PetscFunctionBegin;
  b->g.grad = grad.data;
  b->g.stride = grad.stride;
  b->g.narrow = grad.type == TRS_BF16;
  b->g.aligned = are_gradients_aligned(b);
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_OUT_COLUMNS, n, sizeof(*columns), &columns));
  for (int64_t f = 0; f < n; f++) columns[f] = by_id ? 0 : b->tbe->feature[f].out_column;
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_OUT_COLUMNS, stream,
                               n * static_cast<int64_t>(sizeof(*columns)), columns, &b->g.out_column));
  b->g.sums_stride = (b->widest + 3) / 4 * 4;
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_SUMS, (b->o.n / (TRS_SHORT_RUN / 2) + 1) * b->g.sums_stride,
                           sizeof(*b->g.sums), &b->g.sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}
