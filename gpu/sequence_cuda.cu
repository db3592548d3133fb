/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sequences and positions on the GPU. The kernels copy a bag's rows to the model's input, and
  gradients back to the rows. They also apply weights by position. Twin of src/cpu/sequence_cpu.c,
  with the same bits except for the sums of position_gradients. A thread handles four columns of a
  bag, or one if columns are not aligned. The next thread handles the next columns.
*/
#include "gpu/compute_cuda.h"
#include "gpu/tbe/tbe_rows_cuda.h"
#include "gpu/workspace_cuda.h"

enum { TRS_SEQUENCE_THREADS = 256 };

static __device__ __forceinline__ int64_t row_of(const TrsSequenceBags &bags, int64_t id)
{
  return ((bags.index ? bags.index[id] : id) + bags.shift) * bags.row_stride;
}

static __device__ __forceinline__ bool is_row_of_table(const TrsSequenceBags &bags, int64_t id)
{
  return !bags.ids || bags.ids[id] >= 0;
}

enum { TRS_IN_FLIGHT = 4 };

/*
  x[u] gets the columns from d on in the row of id i + u. Pruned ids and ids with index >= end give
  zeros. All row indices are loaded before the first row.
*/
template <int COLUMNS>
static __device__ __forceinline__ void load_rows(const TrsSequenceBags &bags, const float *rows, int64_t i,
                                                 int64_t end, int64_t d, float (*x)[COLUMNS])
{
  int64_t at[TRS_IN_FLIGHT];
  bool is_row[TRS_IN_FLIGHT];

#pragma unroll
  for (int u = 0; u < TRS_IN_FLIGHT; u++) {
    is_row[u] = i + u < end && is_row_of_table(bags, i + u);
    at[u] = i + u < end ? row_of(bags, i + u) : 0;
  }
#pragma unroll
  for (int u = 0; u < TRS_IN_FLIGHT; u++) {
    for (int j = 0; j < COLUMNS; j++) x[u][j] = 0.0f;
    if (is_row[u]) load_floats<COLUMNS>(rows + at[u] + d, x[u]);
  }
}

/*
  Find the bag's maximum in each column from d on, and the index of the first id with this maximum.
  The index is `end` if all ids are pruned.
*/
template <int COLUMNS>
static __device__ void find_maxima(const TrsSequenceBags &bags, const float *rows, int64_t begin, int64_t end,
                                   int64_t d, int64_t *at, float *maximum)
{
  for (int j = 0; j < COLUMNS; j++) {
    at[j] = end;
    maximum[j] = 0.0f;
  }
  for (int64_t i = begin; i < end; i++) {
    float x[COLUMNS];

    if (!is_row_of_table(bags, i)) continue;
    load_floats<COLUMNS>(rows + row_of(bags, i) + d, x);
    for (int j = 0; j < COLUMNS; j++)
      if (at[j] == end || x[j] > maximum[j]) {
        at[j] = i;
        maximum[j] = x[j];
      }
  }
}

/* Reads each unpruned row once, and writes the result once. */
template <int COLUMNS>
static __global__ void __launch_bounds__(TRS_SEQUENCE_THREADS)
    sequence_forward_kernel(TrsSequenceBags bags, const float *rows, float *out, int64_t out_stride)
{
  const int64_t lanes = bags.dim / COLUMNS; /* number of threads per bag */

  for (int64_t k = TrsCudaFirst(); k < bags.batch * lanes; k += TrsCudaStep()) {
    const int64_t b = k / lanes, d = k % lanes * COLUMNS, begin = bags.offsets[b], end = bags.offsets[b + 1];
    float *const to = out + b * out_stride + d, x[TRS_IN_FLIGHT][COLUMNS], sum[COLUMNS] = {};
    int64_t at[COLUMNS];

    if (bags.pooling == TRS_SEQUENCE_CONCAT) {
      for (int64_t place = 0; place < bags.places; place += TRS_IN_FLIGHT) {
        load_rows<COLUMNS>(bags, rows, begin + place, end, d, x);
#pragma unroll
        for (int u = 0; u < TRS_IN_FLIGHT; u++)
          if (place + u < bags.places) stream_floats<COLUMNS>(to + (place + u) * bags.place_stride, x[u]);
      }
      continue;
    }
    if (bags.pooling == TRS_SEQUENCE_MEAN) {
      for (int64_t i = begin; i < end; i += TRS_IN_FLIGHT) {
        load_rows<COLUMNS>(bags, rows, i, end, d, x);
#pragma unroll
        for (int u = 0; u < TRS_IN_FLIGHT; u++)
          for (int j = 0; j < COLUMNS; j++) sum[j] += x[u][j];
      }
      for (int j = 0; j < COLUMNS && end - begin > 1; j++) sum[j] /= static_cast<float>(end - begin);
    } else {
      find_maxima<COLUMNS>(bags, rows, begin, end, d, at, sum);
    }
    stream_floats<COLUMNS>(to, sum);
  }
}

/*
  True if a thread can handle four columns at a time in all matrices that a kernel reads and writes.
*/
static bool by_four(const TrsSequenceBags *bags, const float *rows, const float *matrix, int64_t stride,
                    const float *to)
{
  return bags->dim % 4 == 0 && bags->row_stride % 4 == 0 && TrsCudaIsAligned(rows, 0, 16) &&
         TrsCudaIsAligned(matrix, stride * 4, 16) && TrsCudaIsAligned(to, 0, 16) &&
         (bags->pooling != TRS_SEQUENCE_CONCAT || bags->place_stride % 4 == 0);
}

PetscErrorCode TrsSequenceForwardCuda(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                      float *out, int64_t out_stride)
{
  const bool wide = by_four(bags, rows, out, out_stride, nullptr);
  const dim3 blocks = TrsCudaBlocks(bags->batch * bags->dim / (wide ? 4 : 1), TRS_SEQUENCE_THREADS);

  PetscFunctionBegin;
  if (bags->batch <= 0 || bags->dim <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (wide)
    CU_LAUNCH(sequence_forward_kernel<4>, blocks, TRS_SEQUENCE_THREADS, 0, TrsCudaStream(stream), *bags, rows,
              out, out_stride);
  else
    CU_LAUNCH(sequence_forward_kernel<1>, blocks, TRS_SEQUENCE_THREADS, 0, TrsCudaStream(stream), *bags, rows,
              out, out_stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <int COLUMNS>
static __global__ void __launch_bounds__(TRS_SEQUENCE_THREADS)
    sequence_backward_kernel(TrsSequenceBags bags, const float *rows, const float *grad, int64_t grad_stride,
                             int by_id, float *to)
{
  const int64_t lanes = bags.dim / COLUMNS; /* number of threads per bag */

  for (int64_t k = TrsCudaFirst(); k < bags.batch * lanes; k += TrsCudaStep()) {
    const int64_t b = k / lanes, d = k % lanes * COLUMNS, begin = bags.offsets[b], end = bags.offsets[b + 1];
    const float *const g = grad + b * grad_stride + d;
    const bool concat = bags.pooling == TRS_SEQUENCE_CONCAT, mean = bags.pooling == TRS_SEQUENCE_MEAN;
    float own[COLUMNS] = {}, maximum[COLUMNS];
    int64_t at[COLUMNS] = {};

    if (!concat) load_floats<COLUMNS>(g, own);
    if (bags.pooling == TRS_SEQUENCE_MAX) find_maxima<COLUMNS>(bags, rows, begin, end, d, at, maximum);
    for (int j = 0; j < COLUMNS && mean; j++) own[j] /= static_cast<float>(end - begin);
    for (int64_t i = begin; i < end; i++) {
      float x[COLUMNS] = {};

      if (is_row_of_table(bags, i) && concat && i - begin < bags.places)
        load_floats<COLUMNS>(g + (i - begin) * bags.place_stride, x);
      else if (is_row_of_table(bags, i) && !concat)
        for (int j = 0; j < COLUMNS; j++) x[j] = mean || at[j] == i ? own[j] : 0.0f;
      keep_floats<COLUMNS>(to + (by_id ? i * bags.row_stride : row_of(bags, i)) + d, x);
    }
  }
}

PetscErrorCode TrsSequenceBackwardCuda(TrsStream stream, const TrsSequenceBags *bags, const float *rows,
                                       const float *grad, int64_t grad_stride, PetscBool by_id, float *to)
{
  const bool wide = by_four(bags, rows, grad, grad_stride, to);
  const dim3 blocks = TrsCudaBlocks(bags->batch * bags->dim / (wide ? 4 : 1), TRS_SEQUENCE_THREADS);

  PetscFunctionBegin;
  if (bags->batch <= 0 || bags->dim <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (wide)
    CU_LAUNCH(sequence_backward_kernel<4>, blocks, TRS_SEQUENCE_THREADS, 0, TrsCudaStream(stream), *bags,
              rows, grad, grad_stride, static_cast<int>(by_id), to);
  else
    CU_LAUNCH(sequence_backward_kernel<1>, blocks, TRS_SEQUENCE_THREADS, 0, TrsCudaStream(stream), *bags,
              rows, grad, grad_stride, static_cast<int>(by_id), to);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- positions --- */

static __global__ void positions_kernel(int64_t n_bags, const int64_t *offsets, float *positions)
{
  for (int64_t b = TrsCudaFirst(); b < n_bags; b += TrsCudaStep())
    for (int64_t i = offsets[b]; i < offsets[b + 1]; i++) positions[i] = static_cast<float>(i - offsets[b]);
}

PetscErrorCode TrsPositionsCuda(TrsStream stream, int64_t n_bags, const int64_t *offsets, float *positions)
{
  PetscFunctionBegin;
  if (n_bags <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(positions_kernel, TrsCudaBlocks(n_bags, TRS_SEQUENCE_THREADS), TRS_SEQUENCE_THREADS, 0,
            TrsCudaStream(stream), n_bags, offsets, positions);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static __global__ void position_weights_kernel(int64_t n_bags, const int64_t *offsets, const float *positions,
                                               int64_t length, const float *by_position, float *weights)
{
  for (int64_t i = offsets[0] + TrsCudaFirst(); i < offsets[n_bags]; i += TrsCudaStep()) {
    const int64_t position = static_cast<int64_t>(positions[i]);
    weights[i] = position >= 0 && position < length ? by_position[position] : 0.0f;
  }
}

PetscErrorCode TrsPositionWeightsCuda(TrsStream stream, int64_t n_bags, const int64_t *offsets,
                                      const float *positions, int64_t length, const float *by_position,
                                      float *weights)
{
  PetscFunctionBegin;
  if (n_bags <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(position_weights_kernel, TrsCudaBlocks(n_bags, TRS_SEQUENCE_THREADS), TRS_SEQUENCE_THREADS, 0,
            TrsCudaStream(stream), n_bags, offsets, positions, length, by_position, weights);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Number of positions per thread block, and number of parts into which the ids are cut. The order of
  a sum depends only on the number of ids.
*/
enum { TRS_POSITIONS = 32, TRS_POSITION_THREADS = 128, TRS_POSITION_PARTS = 64 };

/*
  Thread block (x, y) handles 32 positions and one part of the ids. Every thread makes its own sums.
  Then the sums of all threads are added in thread order.
*/
static __global__ void position_sums_kernel(int64_t n_bags, const int64_t *offsets, const float *positions,
                                            const float *grad_weights, int64_t length, double *sums)
{
  /* threads also read columns, and + 1 puts the elements of a column into different banks */
  __shared__ double sum[TRS_POSITIONS][TRS_POSITION_THREADS + 1];
  const int64_t first = offsets[0], n = offsets[n_bags] - first,
                low = static_cast<int64_t>(blockIdx.x) * TRS_POSITIONS;
  const int64_t begin = first + n * blockIdx.y / TRS_POSITION_PARTS,
                end = first + n * (blockIdx.y + 1) / TRS_POSITION_PARTS;
  const int me = static_cast<int>(threadIdx.x);

  for (int p = 0; p < TRS_POSITIONS; p++) sum[p][me] = 0.0;
  for (int64_t i = begin + me; i < end; i += TRS_POSITION_THREADS) {
    const int64_t p = static_cast<int64_t>(positions[i]) - low;
    if (p >= 0 && p < TRS_POSITIONS) sum[p][me] += static_cast<double>(grad_weights[i]);
  }
  __syncthreads();
  if (me < TRS_POSITIONS && low + me < length) {
    double total = 0.0;

    for (int t = 0; t < TRS_POSITION_THREADS; t++) total += sum[me][t];
    sums[blockIdx.y * length + low + me] = total;
  }
}

static __global__ void add_positions_kernel(int64_t length, const double *sums, float *by_position)
{
  for (int64_t p = TrsCudaFirst(); p < length; p += TrsCudaStep()) {
    double total = 0.0;

    for (int part = 0; part < TRS_POSITION_PARTS; part++) total += sums[part * length + p];
    by_position[p] = static_cast<float>(static_cast<double>(by_position[p]) + total);
  }
}

/* All positions and gradients are read once for every 32 positions. */
PetscErrorCode TrsPositionGradientsCuda(TrsStream stream, TrsWorkspace workspace, int64_t n_bags,
                                        const int64_t *offsets, const float *positions,
                                        const float *grad_weights, int64_t length, float *by_position)
{
  const dim3 grid(static_cast<unsigned>((length + TRS_POSITIONS - 1) / TRS_POSITIONS), TRS_POSITION_PARTS);
  double *sums;

  PetscFunctionBegin;
  if (n_bags <= 0 || length <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_SUMS, TRS_POSITION_PARTS * length, sizeof(*sums), &sums));
  CU_LAUNCH(position_sums_kernel, grid, TRS_POSITION_THREADS, 0, TrsCudaStream(stream), n_bags, offsets,
            positions, grad_weights, length, sums);
  CU_LAUNCH(add_positions_kernel, TrsCudaBlocks(length, TRS_SEQUENCE_THREADS), TRS_SEQUENCE_THREADS, 0,
            TrsCudaStream(stream), length, sums, by_position);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
