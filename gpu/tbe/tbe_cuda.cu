/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Table-batched embedding on the GPU: lookups. Twin of src/cpu/tbe_cpu.c, with the same sums bit for
  bit: a bag's ids are added in order, in fp32.

  A group of lanes (tbe_rows_cuda.h) handles several adjacent bags of a feature, with about
  TRS_TILE_IDS ids, and keeps two to four rows in flight. It loads each id once, one id per lane,
  and distributes the rows' addresses by shuffles. Features with the same type and width share a
  launch, which has as many thread blocks as the GPU holds at once. Bytes moved: the row of each
  occurrence once, 8 bytes per id, and the pooled rows once.

  Source: FBGEMM split_embedding_codegen_lookup_* forward
*/
#include "gpu/compute_cuda.h"
#include "gpu/tbe/tbe_rows_cuda.h"
#include "gpu/workspace_cuda.h"

enum { TRS_LOOKUP_THREADS = 256, TRS_GRID_Y = 65535, TRS_TILE_IDS = 32 };

/*
  Number of thread blocks per multiprocessor. A thread has 64 registers, or 80 if it unpacks
  quantised rows.
*/
template <TrsDType DTYPE> constexpr int blocks_of = is_float<DTYPE> ? 4 : 3;

/* The data about a feature and its table that a lookup needs. */
struct LookupFeature {
  const char *weight;
  int64_t rows, stride_bytes;
  int64_t first_bag, out_column;
  int32_t dim, mean;
  /* lines of the table's cache (compute/cache.h); NULL if the table is not cached */
  const char *lines;
  int64_t line_bytes;
};

/* Number of rows in flight: as many as the registers can hold. */
static __host__ __device__ constexpr int rows_in_flight(int columns)
{
  return columns > 8 ? 2 : 4;
}

/*
  x[ROWS][COLUMNS] gets the columns from col on in the rows of the values from index i on. Pruned
  ids, invalid ids and indices >= end give zeros. is_row marks the ids that are rows. All ids are
  loaded before the first row, and all rows before the first use. CACHED: the table may have a
  cache.
*/
template <TrsDType DTYPE, int COLUMNS, bool CACHED, int ROWS>
static __device__ __forceinline__ void load_rows(const LookupFeature &f, const TrsTbeInput &input, int64_t i,
                                                 int64_t end, int col, float (*x)[COLUMNS], bool *is_row)
{
  int64_t id[ROWS];
  int32_t line[ROWS];

#pragma unroll
  for (int u = 0; u < ROWS; u++) {
    id[u] = i + u < end ? input.values[i + u] : -1;
    line[u] = CACHED && f.lines && i + u < end ? input.locations[i + u] : -1;
  }
#pragma unroll
  for (int u = 0; u < ROWS; u++) {
    const char *const row = CACHED && line[u] >= 0 ? f.lines + line[u] * f.line_bytes
                                                   : f.weight + id[u] * f.stride_bytes;

    is_row[u] = static_cast<uint64_t>(id[u]) < static_cast<uint64_t>(f.rows);
    for (int j = 0; j < COLUMNS; j++) x[u][j] = 0.0f;
    if (is_row[u]) load_columns<DTYPE, COLUMNS>(row, col, x[u]);
  }
}

/* The row and the weight of an occurrence. The row is NULL if the id is not a row. */
struct Occurrence {
  const char *row;
  float weight;
};

/* The occurrence of value i. Pruned ids, invalid ids and indices >= end have no row. */
template <bool CACHED>
static __device__ __forceinline__ Occurrence occurrence_at(const LookupFeature &f, const TrsTbeInput &input,
                                                           int64_t i, int64_t end)
{
  const int64_t id = i < end ? __ldg(input.values + i) : -1;
  const bool is_row = static_cast<uint64_t>(id) < static_cast<uint64_t>(f.rows);
  const int32_t line = CACHED && f.lines && is_row ? __ldg(input.locations + i) : -1;
  const char *const row = CACHED && line >= 0 ? f.lines + line * f.line_bytes
                                              : f.weight + id * f.stride_bytes;

  return {is_row ? row : nullptr, is_row && input.weights ? __ldg(input.weights + i) : is_row ? 1.0f : 0.0f};
}

/* The row of the occurrence that lane `from` of the group holds. */
static __device__ __forceinline__ const char *row_of(const Occurrence &mine, int from, int lanes,
                                                     unsigned mask)
{
  const unsigned long long row = reinterpret_cast<uintptr_t>(mine.row);

  return reinterpret_cast<const char *>(static_cast<uintptr_t>(__shfl_sync(mask, row, from, lanes)));
}

/*
  Store pooled columns. If the row is quantised, it may end within the lane's columns, and the
  pooled row may be unaligned.
*/
template <TrsDType DTYPE, int COLUMNS, class OUT>
static __device__ __forceinline__ void store_pooled(OUT *to, int col, int dim, const float *x)
{
  constexpr uintptr_t unit = 4 * sizeof(OUT); /* bytes that one store of four numbers writes */

  if (is_float<DTYPE> || (col + COLUMNS <= dim && reinterpret_cast<uintptr_t>(to + col) % unit == 0)) {
    stream_numbers<COLUMNS>(to + col, x);
  } else {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
      if (col + j < dim) from_float(x[j], &to[col + j]);
  }
}

/* The current bag of a group of lanes. */
template <class OUT> struct Pooled {
  OUT *to;            /* the bag's pooled row */
  const int64_t *end; /* address of the bag's end in the offsets */
  int32_t bags;       /* number of the group's bags from this bag on */
  uint32_t left;      /* number of the bag's values that are not added yet */
};

static __device__ __forceinline__ uint32_t bag_length(const int64_t *end)
{
  return static_cast<uint32_t>(__ldg(end) - __ldg(end - 1));
}

/* Store the pooled rows of complete bags, and go on to the first incomplete bag. */
template <TrsDType DTYPE, int COLUMNS, class OUT>
static __device__ __forceinline__ void finish_bags(const LookupFeature &f, int64_t out_stride, int col,
                                                   Pooled<OUT> *at, float *acc)
{
  while (at->left == 0 && at->bags > 0) {
    const uint32_t length = f.mean ? bag_length(at->end) : 0;

    if (length > 1)
      for (int j = 0; j < COLUMNS; j++) acc[j] /= static_cast<float>(length);
    if (col < f.dim) store_pooled<DTYPE, COLUMNS>(at->to, col, f.dim, acc);
    for (int j = 0; j < COLUMNS; j++) acc[j] = 0.0f;
    at->to += out_stride;
    at->end++;
    if (--at->bags > 0) at->left = bag_length(at->end);
  }
}

/*
  Pool adjacent bags of a feature, in the lane's columns from col on. The values of these bags are
  adjacent, so rows of several short bags are in flight together. Each bag's rows are added in
  order. The group loads as many ids as it has lanes, one id per lane. The lanes then distribute the
  rows' addresses. A group has at least as many lanes as rows in flight, even if a row needs fewer.
*/
template <TrsDType DTYPE, int COLUMNS, bool CACHED, class OUT>
static __device__ __forceinline__ void pool_bags(const LookupFeature &f, const TrsTbeInput &input, int lanes,
                                                 int col, int64_t out_stride, Pooled<OUT> at)
{
  constexpr int ROWS = rows_in_flight(COLUMNS);
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const unsigned mask = group_mask(lanes);
  const int64_t end = __ldg(at.end + at.bags - 1);
  const bool is_column = col < f.dim;
  float acc[COLUMNS] = {};

  at.left = bag_length(at.end);
  for (int64_t first = __ldg(at.end - 1); first < end; first += lanes) {
    const Occurrence mine = occurrence_at<CACHED>(f, input, first + lane, end);

    for (int k = 0; k < lanes && first + k < end; k += ROWS) {
      RawColumns<DTYPE, COLUMNS> raw[ROWS] = {};

#pragma unroll
      for (int u = 0; u < ROWS; u++) {
        const char *const row = row_of(mine, k + u, lanes, mask);

        if (row && is_column) raw[u] = load_raw<DTYPE, COLUMNS, true>(row, col);
      }
#pragma unroll
      for (int u = 0; u < ROWS; u++) {
        const float weight = __shfl_sync(mask, mine.weight, k + u, lanes);
        float x[COLUMNS];

        finish_bags<DTYPE, COLUMNS>(f, out_stride, col, &at, acc);
        widen<DTYPE, COLUMNS>(raw[u], x);
        for (int j = 0; j < COLUMNS; j++) acc[j] += weight * x[j];
        at.left--;
      }
    }
  }
  at.left = 0;
  finish_bags<DTYPE, COLUMNS>(f, out_stride, col, &at, acc);
}

/*
  A tile is a group of `bags` adjacent bags of a feature. A group of lanes handles one tile at a
  time.
*/
struct Tiles {
  uint32_t n, each; /* number of tiles of all features, and of one feature */
  int32_t bags;
};

/*
  Groups of lanes process the tiles in the order of features, so that they read one table after the
  other.
*/
template <TrsDType DTYPE, int COLUMNS, bool CACHED, class OUT>
static __global__ void __launch_bounds__(TRS_LOOKUP_THREADS, blocks_of<DTYPE>)
    forward_kernel(const LookupFeature *__restrict__ features, TrsTbeInput input, Tiles tiles, int lanes_log2,
                   OUT *__restrict__ out, int64_t out_stride)
{
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);

  for (uint32_t t = static_cast<uint32_t>(TrsCudaFirst() >> lanes_log2); t < tiles.n;
       t += static_cast<uint32_t>(TrsCudaStep() >> lanes_log2)) {
    const uint32_t feature = t / tiles.each;
    const LookupFeature &f = features[feature];
    const int64_t bag = static_cast<int64_t>(t - feature * tiles.each) * tiles.bags;
    const int32_t bags = input.batch - bag < tiles.bags ? static_cast<int32_t>(input.batch - bag)
                                                        : tiles.bags;

    for (int first = 0; first < f.dim; first += lanes * COLUMNS)
      pool_bags<DTYPE, COLUMNS, CACHED>(
          f, input, lanes, first + lane * COLUMNS, out_stride,
          Pooled<OUT>{out + bag * out_stride + f.out_column, input.offsets + f.first_bag + bag + 1, bags, 0});
  }
}

/*
  Look up sequences, which are not pooled. A group handles as many rows at a time as it keeps in
  flight. Weights are not used.
*/
template <TrsDType DTYPE, int COLUMNS, bool CACHED>
static __global__ void __launch_bounds__(TRS_LOOKUP_THREADS)
    forward_rows_kernel(const LookupFeature *features, TrsTbeInput input, int lanes_log2, float *out,
                        int64_t out_stride)
{
  const LookupFeature f = features[blockIdx.y];
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t begin = input.offsets[f.first_bag], end = input.offsets[f.first_bag + input.batch];
  constexpr int ROWS = rows_in_flight(COLUMNS);

  for (int64_t i = begin + (TrsCudaFirst() >> lanes_log2) * ROWS; i < end;
       i += (TrsCudaStep() >> lanes_log2) * ROWS)
    for (int col = lane * COLUMNS; col < f.dim; col += lanes * COLUMNS) {
      float x[ROWS][COLUMNS];
      bool is_row[ROWS];

      load_rows<DTYPE, COLUMNS, CACHED, ROWS>(f, input, i, end, col, x, is_row);
#pragma unroll
      for (int u = 0; u < ROWS; u++) {
        /* + 0.0f turns -0 into +0, as a sum of one row would */
        for (int j = 0; j < COLUMNS; j++) x[u][j] += 0.0f;
        if (i + u < end) store_pooled<DTYPE, COLUMNS>(out + (i + u) * out_stride, col, f.dim, x[u]);
      }
    }
}

/*
  Compute the gradient of each value's weight: the dot product of its row and its bag's gradient.
*/
template <TrsDType DTYPE, int COLUMNS, bool CACHED>
static __global__ void __launch_bounds__(TRS_LOOKUP_THREADS)
    weight_gradients_kernel(const LookupFeature *features, TrsTbeInput input, int lanes_log2,
                            const float *grad, int64_t grad_stride, float *to)
{
  const LookupFeature f = features[blockIdx.y];
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const unsigned mask = group_mask(lanes);
  constexpr int ROWS = rows_in_flight(COLUMNS);

  for (int64_t bag = TrsCudaFirst() >> lanes_log2; bag < input.batch; bag += TrsCudaStep() >> lanes_log2) {
    const float *const g = grad + bag * grad_stride + f.out_column;
    const int64_t end = input.offsets[f.first_bag + bag + 1];

    for (int64_t i = input.offsets[f.first_bag + bag]; i < end; i += ROWS) {
      float sum[ROWS] = {};
      bool is_row[ROWS] = {};

      for (int col = lane * COLUMNS; col < f.dim; col += lanes * COLUMNS) {
        float x[ROWS][COLUMNS], y[COLUMNS];

        load_floats<is_float<DTYPE> ? COLUMNS : 1>(g + col, y);
        for (int j = 1; j < COLUMNS && !is_float<DTYPE>; j++) y[j] = g[col + j];
        load_rows<DTYPE, COLUMNS, CACHED, ROWS>(f, input, i, end, col, x, is_row);
#pragma unroll
        for (int u = 0; u < ROWS; u++)
          for (int j = 0; j < COLUMNS; j++) sum[u] += y[j] * x[u][j];
      }
#pragma unroll
      for (int u = 0; u < ROWS; u++) {
        sum[u] = group_sum(sum[u], lanes, mask);
        if (lane == 0 && i + u < end) to[i + u] = is_row[u] ? sum[u] : 0.0f;
      }
    }
  }
}

/* --- launches: features sorted by type, alignment and width --- */

typedef enum { LOOKUP_POOLED, LOOKUP_ROWS, LOOKUP_WEIGHT_GRADIENTS } LookupKind;

struct Lookup {
  LookupKind kind;
  int n_features;
  TrsTbeInput input;
  /*
    pooled rows (output); for LOOKUP_ROWS the floats of rows; for LOOKUP_WEIGHT_GRADIENTS the
    gradients, which are only read
  */
  TrsMatrix matrix;
  float *grad_weights;
};

/* type * 24 + cached * 12 + aligned * 6 + log2 of lanes */
enum { N_CLASSES = TRS_N_DTYPES * 24 };

static int64_t stride_bytes(const TrsTbeTable *table)
{
  return table->stride * (TrsDTypeBits(table->dtype) > 8 ? TrsDTypeBytes(table->dtype) : 1);
}

static int class_of(const TrsTbeTable *table, const TrsTbeFeature *feature, const Lookup *lookup)
{
  const int wide = TrsCudaColumns(table->dtype, true);
  const TrsMatrix to = TrsMatrixColumns(lookup->matrix,
                                        lookup->kind == LOOKUP_ROWS ? 0 : feature->out_column);
  const bool aligned = table->dim % wide == 0 && TrsCudaIsAligned(table->weight, stride_bytes(table), 16) &&
                       has_fours(to);

  const bool cached = table->lines && lookup->input.locations;

  return static_cast<int>(table->dtype) * 24 + cached * 12 + aligned * 6 +
         TrsCudaLanesLog2(table->dim, TrsCudaColumns(table->dtype, aligned));
}

/*
  Cut the bags of n features into tiles. If bags have similar lengths, a tile has about TRS_TILE_IDS
  ids. If the GPU holds more groups of lanes than there would be tiles, tiles are smaller. But they
  have at least as many ids as a group keeps rows in flight.
*/
static PetscErrorCode tile_bags(const Lookup *lookup, int n, int rows, int64_t groups, Tiles *tiles)
{
  const TrsTbeInput *input = &lookup->input;
  const int64_t one = 1, all = lookup->n_features * input->batch, n_values = PetscMax(one, input->n_values);
  const int64_t least = PetscMin(TRS_TILE_IDS * one, rows * all / n_values),
                most = PetscMin(TRS_TILE_IDS * one, TRS_TILE_IDS * all / n_values);
  const int64_t bags = PetscMax(one, PetscMin(most, PetscMax(least, n * input->batch / groups)));
  const int64_t each = (input->batch + bags - 1) / bags;

  PetscFunctionBegin;
  PetscCheck(
      n * each <= INT32_MAX && input->n_values <= UINT32_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
      "%lld bags and %lld ids in one batch of one rank: the GPU's lookup takes fewer than 2^31 and 2^32",
      static_cast<long long>(n * input->batch), static_cast<long long>(input->n_values));
  *tiles = {static_cast<uint32_t>(n * each), static_cast<uint32_t>(each), static_cast<int32_t>(bags)};
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <TrsDType DTYPE, int COLUMNS, bool CACHED, class OUT>
static PetscErrorCode launch_pooled(TrsStream stream, const Lookup *lookup, int n,
                                    const LookupFeature *features, int lanes_log2)
{
  Tiles tiles;
  dim3 resident, blocks;

  PetscFunctionBegin;
  while (1 << lanes_log2 < rows_in_flight(COLUMNS)) lanes_log2++;
  PetscCall(TrsCudaResidentBlocks(forward_kernel<DTYPE, COLUMNS, CACHED, OUT>, INT32_MAX, TRS_LOOKUP_THREADS,
                                  0, &resident));
  PetscCall(
      tile_bags(lookup, n, rows_in_flight(COLUMNS), resident.x * (TRS_LOOKUP_THREADS >> lanes_log2), &tiles));
  blocks = TrsCudaBlocks(static_cast<int64_t>(tiles.n) << lanes_log2, TRS_LOOKUP_THREADS);
  blocks.x = PetscMin(blocks.x, resident.x);
  CU_LAUNCH((forward_kernel<DTYPE, COLUMNS, CACHED, OUT>), blocks, TRS_LOOKUP_THREADS, 0,
            TrsCudaStream(stream), features, lookup->input, tiles, lanes_log2,
            static_cast<OUT *>(lookup->matrix.data), lookup->matrix.stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <TrsDType DTYPE, int COLUMNS, bool CACHED>
static PetscErrorCode launch(TrsStream stream, const Lookup *lookup, int n, const LookupFeature *features,
                             int lanes_log2)
{
  const cudaStream_t s = TrsCudaStream(stream);
  float *const matrix = static_cast<float *>(lookup->matrix.data);
  const int64_t groups = lookup->kind == LOOKUP_ROWS ? (lookup->input.n_values + n - 1) / n
                                                     : lookup->input.batch;
  dim3 grid = TrsCudaBlocks(groups << lanes_log2, TRS_LOOKUP_THREADS);

  PetscFunctionBegin;
  if (lookup->kind == LOOKUP_POOLED) {
    const bool narrow = lookup->matrix.type == TRS_BF16;

    PetscCall((narrow
                   ? launch_pooled<DTYPE, COLUMNS, CACHED, Bf16>
                   : launch_pooled<DTYPE, COLUMNS, CACHED, float>)(stream, lookup, n, features, lanes_log2));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int first = 0; first < n; first += TRS_GRID_Y) {
    grid.y = static_cast<unsigned>(PetscMin(n - first, static_cast<int>(TRS_GRID_Y)));
    if (lookup->kind == LOOKUP_ROWS)
      CU_LAUNCH((forward_rows_kernel<DTYPE, COLUMNS, CACHED>), grid, TRS_LOOKUP_THREADS, 0, s,
                features + first, lookup->input, lanes_log2, matrix, lookup->matrix.stride);
    else
      CU_LAUNCH((weight_gradients_kernel<DTYPE, COLUMNS, CACHED>), grid, TRS_LOOKUP_THREADS, 0, s,
                features + first, lookup->input, lanes_log2, matrix, lookup->matrix.stride,
                lookup->grad_weights);
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <TrsDType DTYPE, int COLUMNS>
static PetscErrorCode launch_rows(TrsStream stream, const Lookup *lookup, int key, int n,
                                  const LookupFeature *features)
{
  const bool cached = key / 12 % 2, aligned = key / 6 % 2;
  const int lanes_log2 = key % 6;

  PetscFunctionBegin;
  if (cached)
    PetscCall((aligned ? launch<DTYPE, COLUMNS, true> : launch<DTYPE, 1, true>)(stream, lookup, n, features,
                                                                                lanes_log2));
  else
    PetscCall((aligned ? launch<DTYPE, COLUMNS, false> : launch<DTYPE, 1, false>)(stream, lookup, n, features,
                                                                                  lanes_log2));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode launch_class(TrsStream stream, const Lookup *lookup, int key, int n,
                                   const LookupFeature *features)
{
  const TrsDType dtype = static_cast<TrsDType>(key / 24);
  const int lanes_log2 = key % 6;

  PetscFunctionBegin;
  switch (dtype) {
  case TRS_FP32: PetscCall((launch_rows<TRS_FP32, 4>)(stream, lookup, key, n, features)); break;
  case TRS_FP16: PetscCall((launch_rows<TRS_FP16, 8>)(stream, lookup, key, n, features)); break;
  case TRS_BF16: PetscCall((launch_rows<TRS_BF16, 8>)(stream, lookup, key, n, features)); break;
  case TRS_INT8: PetscCall((launch<TRS_INT8, 4, false>)(stream, lookup, n, features, lanes_log2)); break;
  case TRS_INT4: PetscCall((launch<TRS_INT4, 8, false>)(stream, lookup, n, features, lanes_log2)); break;
  case TRS_INT2: PetscCall((launch<TRS_INT2, 16, false>)(stream, lookup, n, features, lanes_log2)); break;
  default: SETERRQ(PETSC_COMM_SELF, TRS_ERR_INTERNAL, "tables of %s", TrsDTypeName(dtype));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode look_up(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                              const Lookup *lookup)
{
  int begin[N_CLASSES + 1] = {0}, *key;
  LookupFeature *list, *features;

  PetscFunctionBegin;
  if (lookup->input.batch <= 0 || tbe->n_features <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
      TrsCudaHostScratch(workspace, TRS_CUDA_LOOKUP + lookup->kind, tbe->n_features, sizeof(*list), &list));
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_CLASSES, tbe->n_features, sizeof(*key), &key));
  for (int f = 0; f < tbe->n_features; f++) {
    key[f] = class_of(&tbe->table[tbe->feature[f].table], &tbe->feature[f], lookup);
    begin[key[f] + 1]++;
  }
  for (int c = 0; c < N_CLASSES; c++) begin[c + 1] += begin[c];
  for (int f = 0; f < tbe->n_features; f++) {
    const TrsTbeFeature *feature = &tbe->feature[f];
    const TrsTbeTable *table = &tbe->table[feature->table];

    list[begin[key[f]]++] = {static_cast<const char *>(table->weight),
                             table->rows,
                             stride_bytes(table),
                             f * lookup->input.batch,
                             feature->out_column,
                             table->dim,
                             feature->mean,
                             static_cast<const char *>(table->lines),
                             table->line_bytes};
  }
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_LOOKUP + lookup->kind, stream,
                               tbe->n_features * static_cast<int64_t>(sizeof(*list)), list, &features));
  for (int c = 0; c < N_CLASSES; c++) { /* begin[c] has become the end of class c */
    const int first = c > 0 ? begin[c - 1] : 0;
    if (begin[c] > first) PetscCall(launch_class(stream, lookup, c, begin[c] - first, features + first));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeForwardCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                 const TrsTbeInput *input, TrsMatrix out)
{
  const Lookup lookup = {LOOKUP_POOLED, tbe->n_features, *input, out, nullptr};

  PetscFunctionBegin;
  PetscCall(look_up(stream, workspace, tbe, &lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeForwardRowsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                     const TrsTbeInput *input, float *out, int64_t out_stride)
{
  const Lookup lookup = {LOOKUP_ROWS, tbe->n_features, *input, TrsFloats(out, out_stride), nullptr};

  PetscFunctionBegin;
  if (input->n_values > 0) PetscCall(look_up(stream, workspace, tbe, &lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeWeightGradientsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                         const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                         float *grad_weights)
{
  const Lookup lookup = {LOOKUP_WEIGHT_GRADIENTS, tbe->n_features, *input, TrsFloats(grad, grad_stride),
                         grad_weights};

  PetscFunctionBegin;
  PetscCall(look_up(stream, workspace, tbe, &lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}
