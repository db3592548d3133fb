/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Table-batched embedding on the GPU: lookups. Twin of src/compute/tbe_cpu.c, with the same sums bit
  for bit: the ids of a bag are added in their order, in fp32.

  A group of lanes has a bag (tbe_rows_cuda.h), with two to four of its rows in flight. Features of
  one type and width share a launch: grid x over bags, y over features. Bytes moved: each
  occurrence's row once, ids 8 bytes a group, the pooled rows once.

  Source: FBGEMM split_embedding_codegen_lookup_* forward
*/
#include "gpu/compute_cuda.h"
#include "gpu/tbe_rows_cuda.h"
#include "gpu/workspace_cuda.h"

enum { TRS_LOOKUP_THREADS = 256, TRS_GRID_Y = 65535 };

/*
  Thread blocks that a multiprocessor should hold: with 64 registers a thread, and 80 if quantised
  rows are unpacked.
*/
template <TrsDType DTYPE> constexpr int blocks_of = is_float<DTYPE> ? 4 : 3;

/* The data of a feature and its table that a launch needs. */
struct LookupFeature {
  const char *weight;
  int64_t rows, stride_bytes;
  int64_t first_bag, out_column;
  int32_t dim, mean;
  const char *lines; /* lines of a cached table (compute/cache.h), else NULL */
  int64_t line_bytes;
};

/* Number of rows in flight: as many as fit in registers. */
static __host__ __device__ constexpr int rows_in_flight(int columns)
{
  return columns > 8 ? 2 : 4;
}

/*
  x[ROWS][COLUMNS] = columns col .. of the rows of values i .. Pruned ids, bad ids and ids from end
  on give zeros. is_row says which ids are rows. All ids are loaded before the first row, and all
  rows before the first use. CACHED: the table may have a cache.
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

/* acc[COLUMNS] = sum of the rows of values [begin, end) in columns col .. */
template <TrsDType DTYPE, int COLUMNS, bool CACHED>
static __device__ __forceinline__ void pool(const LookupFeature &f, const TrsTbeInput &input, int64_t begin,
                                            int64_t end, int col, float *acc)
{
  constexpr int ROWS = rows_in_flight(COLUMNS);

  for (int j = 0; j < COLUMNS; j++) acc[j] = 0.0f;
  for (int64_t i = begin; i < end; i += ROWS) {
    float x[ROWS][COLUMNS], weight[ROWS];
    bool is_row[ROWS];

#pragma unroll
    for (int u = 0; u < ROWS; u++) weight[u] = input.weights && i + u < end ? input.weights[i + u] : 1.0f;
    load_rows<DTYPE, COLUMNS, CACHED, ROWS>(f, input, i, end, col, x, is_row);
#pragma unroll
    for (int u = 0; u < ROWS; u++)
      for (int j = 0; j < COLUMNS; j++) acc[j] += (is_row[u] ? weight[u] : 0.0f) * x[u][j];
  }
}

/*
  Store pooled columns. A quantised row may end within a lane's columns, and its pooled row need not
  be aligned.
*/
template <TrsDType DTYPE, int COLUMNS>
static __device__ __forceinline__ void store_pooled(float *to, int col, int dim, const float *x)
{
  if (is_float<DTYPE> || (col + COLUMNS <= dim && reinterpret_cast<uintptr_t>(to + col) % 16 == 0)) {
    stream_floats<COLUMNS>(to + col, x);
  } else {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
      if (col + j < dim) to[col + j] = x[j];
  }
}

template <TrsDType DTYPE, int COLUMNS, bool CACHED>
static __global__ void __launch_bounds__(TRS_LOOKUP_THREADS, blocks_of<DTYPE>)
    forward_kernel(const LookupFeature *features, TrsTbeInput input, int lanes_log2, float *out,
                   int64_t out_stride)
{
  const LookupFeature f = features[blockIdx.y];
  const int lanes = 1 << lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);

  for (int64_t bag = TrsCudaFirst() >> lanes_log2; bag < input.batch; bag += TrsCudaStep() >> lanes_log2) {
    const int64_t begin = input.offsets[f.first_bag + bag], end = input.offsets[f.first_bag + bag + 1];
    float *const to = out + bag * out_stride + f.out_column;

    for (int col = lane * COLUMNS; col < f.dim; col += lanes * COLUMNS) {
      float acc[COLUMNS];

      pool<DTYPE, COLUMNS, CACHED>(f, input, begin, end, col, acc);
      if (f.mean && end - begin > 1)
        for (int j = 0; j < COLUMNS; j++) acc[j] /= static_cast<float>(end - begin);
      store_pooled<DTYPE, COLUMNS>(to, col, f.dim, acc);
    }
  }
}

/* Sequences: a group has as many rows as it keeps in flight. Weights are not used. */
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
        for (int j = 0; j < COLUMNS; j++) x[u][j] += 0.0f; /* a sum of one row has no -0 */
        if (i + u < end) store_pooled<DTYPE, COLUMNS>(out + (i + u) * out_stride, col, f.dim, x[u]);
      }
    }
}

/*
  Compute the gradient of the weight of each value: the product of its row and its bag's gradient.
  Here out is this gradient, [B, out_stride].
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
  TrsTbeInput input;
  float *matrix; /* pooled rows, rows, or gradients, which are only read */
  int64_t stride;
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
  const float *to = lookup->matrix + (lookup->kind == LOOKUP_ROWS ? 0 : feature->out_column);
  const bool aligned = table->dim % wide == 0 && TrsCudaIsAligned(table->weight, stride_bytes(table), 16) &&
                       TrsCudaIsAligned(to, lookup->stride * 4, 16);

  const bool cached = table->lines && lookup->input.locations;

  return static_cast<int>(table->dtype) * 24 + cached * 12 + aligned * 6 +
         TrsCudaLanesLog2(table->dim, TrsCudaColumns(table->dtype, aligned));
}

template <TrsDType DTYPE, int COLUMNS, bool CACHED>
static PetscErrorCode launch(TrsStream stream, const Lookup *lookup, int n, const LookupFeature *features,
                             int lanes_log2)
{
  const cudaStream_t s = TrsCudaStream(stream);
  const int64_t groups = lookup->kind == LOOKUP_ROWS ? (lookup->input.n_values + n - 1) / n
                                                     : lookup->input.batch;
  dim3 grid = TrsCudaBlocks(groups << lanes_log2, TRS_LOOKUP_THREADS);

  PetscFunctionBegin;
  for (int first = 0; first < n; first += TRS_GRID_Y) {
    grid.y = static_cast<unsigned>(PetscMin(n - first, static_cast<int>(TRS_GRID_Y)));
    if (lookup->kind == LOOKUP_POOLED)
      CU_LAUNCH((forward_kernel<DTYPE, COLUMNS, CACHED>), grid, TRS_LOOKUP_THREADS, 0, s, features + first,
                lookup->input, lanes_log2, lookup->matrix, lookup->stride);
    else if (lookup->kind == LOOKUP_ROWS)
      CU_LAUNCH((forward_rows_kernel<DTYPE, COLUMNS, CACHED>), grid, TRS_LOOKUP_THREADS, 0, s,
                features + first, lookup->input, lanes_log2, lookup->matrix, lookup->stride);
    else
      CU_LAUNCH((weight_gradients_kernel<DTYPE, COLUMNS, CACHED>), grid, TRS_LOOKUP_THREADS, 0, s,
                features + first, lookup->input, lanes_log2, lookup->matrix, lookup->stride,
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
  for (int c = 0; c < N_CLASSES; c++) { /* begin[c] is now the end of class c */
    const int first = c > 0 ? begin[c - 1] : 0;
    if (begin[c] > first) PetscCall(launch_class(stream, lookup, c, begin[c] - first, features + first));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeForwardCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                 const TrsTbeInput *input, float *out, int64_t out_stride)
{
  const Lookup lookup = {LOOKUP_POOLED, *input, out, out_stride, nullptr};

  PetscFunctionBegin;
  PetscCall(look_up(stream, workspace, tbe, &lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeForwardRowsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                     const TrsTbeInput *input, float *out, int64_t out_stride)
{
  const Lookup lookup = {LOOKUP_ROWS, *input, out, out_stride, nullptr};

  PetscFunctionBegin;
  if (input->n_values > 0) PetscCall(look_up(stream, workspace, tbe, &lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTbeWeightGradientsCuda(TrsStream stream, TrsWorkspace workspace, const TrsTbe *tbe,
                                         const TrsTbeInput *input, const float *grad, int64_t grad_stride,
                                         float *grad_weights)
{
  const Lookup lookup = {LOOKUP_WEIGHT_GRADIENTS, *input, const_cast<float *>(grad), grad_stride,
                         grad_weights};

  PetscFunctionBegin;
  PetscCall(look_up(stream, workspace, tbe, &lookup));
  PetscFunctionReturn(PETSC_SUCCESS);
}
