/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Copies and sums of pooled rows on the GPU. If rows are aligned to four numbers, a thread handles
  four numbers at a time. If not, it handles one. All kernels are memory-bound.
*/
#include "gpu/compute_cuda.h"
#include "gpu/scan_cuda.h"
#include "gpu/wide_cuda.h"

enum { TRS_MATRIX_THREADS = 256, TRS_SUM_PARTS = 64 };

/* A [rows, cols] matrix in elements of type T. The unit of cols and stride is T. */
template <class T> struct Matrix {
  T *data;
  int64_t stride;
  __device__ __forceinline__ T *at(int64_t row, int64_t col) const
  {
    return data + row * stride + col;
  }
};

static bool is_wide(const void *pointer, int64_t stride, int64_t cols)
{
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride % 4 == 0 && cols % 4 == 0;
}

static bool is_wide_copy(const TrsColumnCopy *copy)
{
  return copy->cols % 4 == 0 && has_fours(copy->from) && has_fours(copy->to);
}

static __device__ __forceinline__ float4 operator+(float4 a, float4 b)
{
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* --- runs of columns --- */

/*
  Largest number of runs of columns in a launch. Number of rows that a thread reads before it
  writes.
*/
enum { TRS_RUNS_A_LAUNCH = 64, TRS_ROWS_IN_FLIGHT = 4 };

/*
  The runs of columns that a launch handles, side by side in one row. begin has the first element of
  each run. Counts of elements fit in an int.
*/
struct Columns {
  int n;
  int begin[TRS_RUNS_A_LAUNCH + 1];
};

/*
  The work of a thread: column `col` of run `run`, in rows row to row + 3, then in four rows `step`
  further down, and so on. row < 0 means no work.
*/
struct Share {
  int run, col;
  int64_t row, step;
};

/* All divisions and searches of a thread are here, before its loop. */
static __device__ __forceinline__ Share share_of(const Columns &columns)
{
  const int64_t first = TrsCudaFirst();
  const int width = columns.begin[columns.n], strip = static_cast<int>(first / width),
            strips = static_cast<int>(TrsCudaStep() / width),
            at = static_cast<int>(first - static_cast<int64_t>(strip) * width);
  int low = 0, high = columns.n - 1;

  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (columns.begin[middle] <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return {low, at - columns.begin[low],
          strip < strips ? static_cast<int64_t>(strip) * TRS_ROWS_IN_FLIGHT : -1,
          static_cast<int64_t>(strips) * TRS_ROWS_IN_FLIGHT};
}

/*
  Number of thread blocks for strips of rows. There are at least as many threads as a row has
  elements.
*/
static dim3 share_blocks(int64_t rows, const Columns &columns)
{
  const int64_t width = columns.begin[columns.n],
                strips = (rows + TRS_ROWS_IN_FLIGHT - 1) / TRS_ROWS_IN_FLIGHT;
  const int64_t most = PetscMax(static_cast<int64_t>(132) * 32 * TRS_MATRIX_THREADS / width, 1);
  const int64_t turns = (strips + most - 1) / most;

  return dim3(static_cast<unsigned>(((strips + turns - 1) / turns * width + TRS_MATRIX_THREADS - 1) /
                                    TRS_MATRIX_THREADS));
}

/* F is the type of the numbers that are read, T of the numbers that are written. */
template <class F, class T> struct CopyJob {
  Columns columns;
  int64_t rows;
  struct {
    const F *from;
    T *to;
    int64_t from_stride, to_stride;
  } run[TRS_RUNS_A_LAUNCH];
};

/*
  An element is a group of COLUMNS numbers, and adjacent threads copy adjacent elements. Every
  element is read and written once. Four elements are read before the first is written.
*/
template <class F, class T, int COLUMNS> static __global__ void copy_columns_kernel(const CopyJob<F, T> job)
{
  const Share share = share_of(job.columns);
  const F *const from = job.run[share.run].from + share.col * COLUMNS;
  T *const to = job.run[share.run].to + share.col * COLUMNS;
  const int64_t from_stride = job.run[share.run].from_stride, to_stride = job.run[share.run].to_stride;

  if (share.row < 0) return;
  for (int64_t row = share.row; row < job.rows; row += share.step) {
    float element[TRS_ROWS_IN_FLIGHT][COLUMNS] = {};

#pragma unroll
    for (int k = 0; k < TRS_ROWS_IN_FLIGHT; k++)
      if (row + k < job.rows) load_numbers<COLUMNS>(from + (row + k) * from_stride, element[k]);
#pragma unroll
    for (int k = 0; k < TRS_ROWS_IN_FLIGHT; k++)
      if (row + k < job.rows) keep_numbers<COLUMNS>(to + (row + k) * to_stride, element[k]);
  }
}

/*
  True if a copy converts F to T, and if its elements are wide (four numbers) exactly if `wide` is
  set.
*/
template <class F, class T> static bool is_kind(const TrsColumnCopy *copy, bool wide)
{
  return (copy->from.type == TRS_BF16) == (sizeof(F) == 2) &&
         (copy->to.type == TRS_BF16) == (sizeof(T) == 2) && is_wide_copy(copy) == wide;
}

/*
  Make the copies that convert F to T in elements of COLUMNS numbers. There is one launch for every
  64 runs.
*/
template <class F, class T, int COLUMNS>
static PetscErrorCode copy_elements(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy)
{
  CopyJob<F, T> job = {};

  PetscFunctionBegin;
  job.rows = rows;
  for (int i = 0; i <= n; i++) {
    const bool last = i == n;
    const int k = job.columns.n;

    if (k > 0 && (last || k == TRS_RUNS_A_LAUNCH)) {
      CU_LAUNCH((copy_columns_kernel<F, T, COLUMNS>), share_blocks(rows, job.columns), TRS_MATRIX_THREADS, 0,
                TrsCudaStream(stream), job);
      TrsCheckLaunch();
      job.columns.n = 0;
    }
    if (last || copy[i].cols <= 0 || !is_kind<F, T>(&copy[i], COLUMNS > 1)) continue;
    job.run[job.columns.n] = {static_cast<const F *>(copy[i].from.data), static_cast<T *>(copy[i].to.data),
                              copy[i].from.stride, copy[i].to.stride};
    job.columns.begin[job.columns.n + 1] = job.columns.begin[job.columns.n] +
                                           static_cast<int>(copy[i].cols / COLUMNS);
    job.columns.n++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class F, class T>
static PetscErrorCode copy_columns(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy)
{
  PetscFunctionBegin;
  PetscCall((copy_elements<F, T, 4>(stream, rows, n, copy)));
  PetscCall((copy_elements<F, T, 1>(stream, rows, n, copy)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopyColumnsCuda(TrsStream stream, int64_t rows, int n, const TrsColumnCopy *copy)
{
  PetscFunctionBegin;
  if (rows <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((copy_columns<float, float>(stream, rows, n, copy)));
  PetscCall((copy_columns<float, Bf16>(stream, rows, n, copy)));
  PetscCall((copy_columns<Bf16, float>(stream, rows, n, copy)));
  PetscCall((copy_columns<Bf16, Bf16>(stream, rows, n, copy)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct MeanJob {
  Columns columns;
  int64_t rows;
  struct {
    float *data;
    int64_t stride;
    const int32_t *lengths;
  } run[TRS_RUNS_A_LAUNCH];
};

/* Divide the pooled rows of bags with more than one id. Reads and writes each element once. */
static __global__ void divide_columns_kernel(const MeanJob job)
{
  const Share share = share_of(job.columns);
  const int32_t *const lengths = job.run[share.run].lengths;
  float *const data = job.run[share.run].data + share.col;
  const int64_t stride = job.run[share.run].stride;

  if (share.row < 0) return;
  for (int64_t row = share.row; row < job.rows; row += share.step) {
    int32_t length[TRS_ROWS_IN_FLIGHT];
    float element[TRS_ROWS_IN_FLIGHT];

#pragma unroll
    for (int k = 0; k < TRS_ROWS_IN_FLIGHT; k++) {
      length[k] = row + k < job.rows ? lengths[row + k] : 0;
    }
#pragma unroll
    for (int k = 0; k < TRS_ROWS_IN_FLIGHT; k++) {
      element[k] = 0.0f;
      if (length[k] > 1) element[k] = data[(row + k) * stride];
    }
#pragma unroll
    for (int k = 0; k < TRS_ROWS_IN_FLIGHT; k++)
      if (length[k] > 1) data[(row + k) * stride] = element[k] / static_cast<float>(length[k]);
  }
}

PetscErrorCode TrsDivideColumnsCuda(TrsStream stream, int64_t rows, int n, const TrsMeanColumns *mean)
{
  MeanJob job = {};

  PetscFunctionBegin;
  if (rows <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  job.rows = rows;
  for (int first = 0; first < n; first += TRS_RUNS_A_LAUNCH) {
    Columns *const columns = &job.columns;

    columns->n = PetscMin(n - first, static_cast<int>(TRS_RUNS_A_LAUNCH));
    for (int i = 0; i < columns->n; i++) {
      PetscCheck(mean[first + i].columns.type == TRS_FP32, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "means of %s",
                 TrsDTypeName(mean[first + i].columns.type));
      job.run[i] = {static_cast<float *>(mean[first + i].columns.data), mean[first + i].columns.stride,
                    mean[first + i].lengths};
      columns->begin[i + 1] = columns->begin[i] + static_cast<int>(mean[first + i].cols);
    }
    if (columns->begin[columns->n] == 0) continue;
    CU_LAUNCH(divide_columns_kernel, share_blocks(rows, *columns), TRS_MATRIX_THREADS, 0,
              TrsCudaStream(stream), job);
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- rows --- */

/*
  A copy of rows in elements of `size` bytes. This is the largest size that divides the addresses,
  strides and row widths.
*/
struct SizedCopy {
  TrsRowsCopy rows;
  int size;
};

static int size_of(const TrsRowsCopy &c)
{
  const uintptr_t bits = reinterpret_cast<uintptr_t>(c.from) | reinterpret_cast<uintptr_t>(c.to) |
                         static_cast<uintptr_t>(c.from_stride | c.to_stride | c.row_bytes);

  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : bits % 2 == 0 ? 2 : 1;
}

/* Copy element number `at` of a copy of rows. T is the type of an element. */
template <class T> static __device__ __forceinline__ void copy_element(const TrsRowsCopy &c, int64_t at)
{
  constexpr int64_t size = static_cast<int64_t>(sizeof(T));
  const int64_t cols = c.row_bytes / size, row = at / cols, col = at - row * cols;
  const Matrix<const T> from = {static_cast<const T *>(c.from), c.from_stride / size};
  const Matrix<T> to = {static_cast<T *>(c.to), c.to_stride / size};

  *to.at(c.to_index ? c.to_index[row] : row, col) = *from.at(c.from_index ? c.from_index[row] : row, col);
}

static __device__ __forceinline__ void copy_sized(const SizedCopy &copy, int64_t at)
{
  switch (copy.size) {
  case 16: copy_element<float4>(copy.rows, at); break;
  case 4: copy_element<float>(copy.rows, at); break;
  case 2: copy_element<uint16_t>(copy.rows, at); break;
  default: copy_element<uint8_t>(copy.rows, at); break;
  }
}

static __global__ void copy_rows_kernel(SizedCopy copy, int64_t n)
{
  for (int64_t i = TrsCudaFirst(); i < n; i += TrsCudaStep()) copy_sized(copy, i);
}

/* begin [n + 1]: index of each copy's first element, counted over all copies. */
static __global__ void copy_many_rows_kernel(int n, const SizedCopy *copy, const int64_t *begin)
{
  for (int64_t i = TrsCudaFirst(); i < begin[n]; i += TrsCudaStep()) {
    const int64_t k = TrsCudaBlockOf(begin, n, i);
    copy_sized(copy[k], i - begin[k]);
  }
}

/*
  Adjacent threads copy adjacent elements of a row. Each row is read and written once. Its index is
  read once per element. If there are several copies, their descriptions are first uploaded to the
  device.
*/
PetscErrorCode TrsCopyRowsCuda(TrsStream stream, TrsWorkspace workspace, int n, const TrsRowsCopy *copy)
{
  const int64_t bytes = n * static_cast<int64_t>(sizeof(SizedCopy)) +
                        (n + 1) * static_cast<int64_t>(sizeof(int64_t));
  SizedCopy *list;
  int64_t *begin;

  PetscFunctionBegin;
  if (n == 1) {
    const SizedCopy one = {*copy, size_of(*copy)};
    const int64_t n_elements = copy->n * (copy->row_bytes / one.size);

    if (n_elements <= 0) PetscFunctionReturn(PETSC_SUCCESS);
    CU_LAUNCH(copy_rows_kernel, TrsCudaBlocks(n_elements, TRS_MATRIX_THREADS), TRS_MATRIX_THREADS, 0,
              TrsCudaStream(stream), one, n_elements);
    TrsCheckLaunch();
  }
  if (n <= 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_COPIES, bytes, 1, &list));
  /*
    Padding bytes are set to zero because an upload compares bytes: if the array on the device
    already has the same bytes, the array is not sent again.
  */
  memset(list, 0, static_cast<size_t>(bytes));
  begin = reinterpret_cast<int64_t *>(list + n);
  for (int k = 0; k < n; k++) {
    list[k].rows = copy[k];
    list[k].size = size_of(copy[k]);
    begin[k + 1] = begin[k] + copy[k].n * (copy[k].row_bytes / list[k].size);
  }
  if (begin[n] == 0) PetscFunctionReturn(PETSC_SUCCESS);
  const dim3 blocks = TrsCudaBlocks(begin[n], TRS_MATRIX_THREADS);
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_COPIES, stream, bytes, list, &list));
  CU_LAUNCH(copy_many_rows_kernel, blocks, TRS_MATRIX_THREADS, 0, TrsCudaStream(stream), n, list,
            reinterpret_cast<const int64_t *>(list + n));
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- sums and bounds --- */

struct Parts {
  const float *part[TRS_SUM_PARTS];
  int n;
  int go_on; /* true: add to `to`, which already holds the sum of earlier parts */
};

/* Read each part once and write the sum. The parts are added in their order. */
template <class T>
static __global__ void sum_kernel(Parts parts, int64_t from_stride, int64_t rows, int64_t cols, Matrix<T> to)
{
  for (int64_t i = TrsCudaFirst(); i < rows * cols; i += TrsCudaStep()) {
    const int64_t row = i / cols, col = i % cols, from = row * from_stride + col;
    T *const place = to.at(row, col);
    T sum = parts.go_on ? *place : reinterpret_cast<const T *>(parts.part[0])[from];

    for (int p = parts.go_on ? 0 : 1; p < parts.n; p++)
      sum = sum + reinterpret_cast<const T *>(parts.part[p])[from];
    *place = sum;
  }
}

PetscErrorCode TrsSumMatricesCuda(TrsStream stream, int n_parts, const float *const *from,
                                  int64_t from_stride, int64_t rows, int64_t cols, float *to,
                                  int64_t to_stride)
{
  bool wide = is_wide(to, to_stride, cols);

  PetscFunctionBegin;
  if (rows <= 0 || cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int p = 0; p < n_parts; p++) wide = wide && is_wide(from[p], from_stride, cols);
  for (int first = 0; first < n_parts; first += TRS_SUM_PARTS) {
    Parts parts = {{}, PetscMin(n_parts - first, static_cast<int>(TRS_SUM_PARTS)), first > 0};

    for (int p = 0; p < parts.n; p++) parts.part[p] = from[first + p];
    if (wide) {
      const Matrix<float4> wide_to = {reinterpret_cast<float4 *>(to), to_stride / 4};
      CU_LAUNCH((sum_kernel<float4>), TrsCudaBlocks(rows * cols / 4, TRS_MATRIX_THREADS), TRS_MATRIX_THREADS,
                0, TrsCudaStream(stream), parts, from_stride / 4, rows, cols / 4, wide_to);
    } else {
      const Matrix<float> any_to = {to, to_stride};
      CU_LAUNCH((sum_kernel<float>), TrsCudaBlocks(rows * cols, TRS_MATRIX_THREADS), TRS_MATRIX_THREADS, 0,
                TrsCudaStream(stream), parts, from_stride, rows, cols, any_to);
    }
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static __global__ void clamp_kernel(int64_t rows, int64_t cols, float limit, Matrix<float> matrix)
{
  for (int64_t i = TrsCudaFirst(); i < rows * cols; i += TrsCudaStep()) {
    float *const place = matrix.at(i / cols, i % cols);
    const float x = *place;
    *place = x > limit ? limit : x < -limit ? -limit : x;
  }
}

PetscErrorCode TrsClampMatrixCuda(TrsStream stream, int64_t rows, int64_t cols, float limit, float *matrix,
                                  int64_t stride)
{
  const Matrix<float> m = {matrix, stride};

  PetscFunctionBegin;
  if (rows <= 0 || cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(clamp_kernel, TrsCudaBlocks(rows * cols, TRS_MATRIX_THREADS), TRS_MATRIX_THREADS, 0,
            TrsCudaStream(stream), rows, cols, limit, m);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static __global__ void scale_kernel(int64_t rows, int64_t cols, float factor, Matrix<float> matrix)
{
  for (int64_t i = TrsCudaFirst(); i < rows * cols; i += TrsCudaStep())
    *matrix.at(i / cols, i % cols) *= factor;
}

PetscErrorCode TrsScaleMatrixCuda(TrsStream stream, int64_t rows, int64_t cols, float factor, float *matrix,
                                  int64_t stride)
{
  const Matrix<float> m = {matrix, stride};

  PetscFunctionBegin;
  if (rows <= 0 || cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(scale_kernel, TrsCudaBlocks(rows * cols, TRS_MATRIX_THREADS), TRS_MATRIX_THREADS, 0,
            TrsCudaStream(stream), rows, cols, factor, m);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static __global__ void join_kernel(int64_t rows, int64_t cols, bool product, Matrix<const float> a,
                                   Matrix<const float> b, Matrix<float> x)
{
  for (int64_t i = TrsCudaFirst(); i < rows * cols; i += TrsCudaStep()) {
    const int64_t row = i / cols, col = i % cols;
    const float left = *a.at(row, col), right = *b.at(row, col);

    *x.at(row, col) = product ? left * right : left + right;
  }
}

PetscErrorCode TrsJoinForwardCuda(TrsStream stream, int64_t rows, int64_t cols, PetscBool product,
                                  TrsMatrix a, TrsMatrix b, TrsMatrix x)
{
  const Matrix<const float> left = {static_cast<const float *>(a.data), a.stride},
                            right = {static_cast<const float *>(b.data), b.stride};
  const Matrix<float> joined = {static_cast<float *>(x.data), x.stride};

  PetscFunctionBegin;
  if (rows <= 0 || cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(join_kernel, TrsCudaBlocks(rows * cols, TRS_MATRIX_THREADS), TRS_MATRIX_THREADS, 0,
            TrsCudaStream(stream), rows, cols, product == PETSC_TRUE, left, right, joined);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static __global__ void join_backward_kernel(int64_t rows, int64_t cols, bool product, Matrix<const float> dx,
                                            Matrix<float> a, Matrix<float> b)
{
  for (int64_t i = TrsCudaFirst(); i < rows * cols; i += TrsCudaStep()) {
    const int64_t row = i / cols, col = i % cols;
    const float grad = *dx.at(row, col), left = *a.at(row, col), right = *b.at(row, col);

    *a.at(row, col) = product ? grad * right : grad;
    *b.at(row, col) = product ? grad * left : grad;
  }
}

PetscErrorCode TrsJoinBackwardCuda(TrsStream stream, int64_t rows, int64_t cols, PetscBool product,
                                   const float *dx, int64_t dx_stride, float *a, float *b, int64_t stride)
{
  const Matrix<const float> grad = {dx, dx_stride};
  const Matrix<float> left = {a, stride}, right = {b, stride};

  PetscFunctionBegin;
  if (rows <= 0 || cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(join_backward_kernel, TrsCudaBlocks(rows * cols, TRS_MATRIX_THREADS), TRS_MATRIX_THREADS, 0,
            TrsCudaStream(stream), rows, cols, product == PETSC_TRUE, grad, left, right);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- matrices of another type --- */

/* A thread handles COLUMNS numbers of a row at a time. Each number is read and written once. */
template <int COLUMNS, class From, class To>
static __global__ void __launch_bounds__(TRS_MATRIX_THREADS)
    convert_kernel(int64_t rows, int64_t cols, int64_t filled, const From *__restrict__ from,
                   int64_t from_stride, To *__restrict__ to, int64_t to_stride)
{
  const int64_t shares = (filled + COLUMNS - 1) / COLUMNS;

  for (int64_t i = TrsCudaFirst(); i < rows * shares; i += TrsCudaStep()) {
    const int64_t r = i / shares, c = i % shares * COLUMNS;
    float x[COLUMNS] = {};

    if (c < cols) load_numbers<COLUMNS>(from + r * from_stride + c, x);
    keep_numbers<COLUMNS>(to + r * to_stride + c, x);
  }
}

template <class From, class To>
static PetscErrorCode convert_matrix(TrsStream stream, int64_t rows, int64_t cols, int64_t filled,
                                     const TrsMatrix *from, const TrsMatrix *to)
{
  const From *const x = static_cast<const From *>(from->data);
  To *const y = static_cast<To *>(to->data);
  const bool wide = (from->stride | to->stride | cols | filled) % 4 == 0 &&
                    reinterpret_cast<uintptr_t>(x) % (4 * sizeof(From)) == 0 &&
                    reinterpret_cast<uintptr_t>(y) % (4 * sizeof(To)) == 0;
  const dim3 blocks = TrsCudaBlocks(rows * (wide ? filled / 4 : filled), TRS_MATRIX_THREADS);

  PetscFunctionBegin;
  if (rows <= 0 || filled <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (wide)
    CU_LAUNCH((convert_kernel<4, From, To>), blocks, TRS_MATRIX_THREADS, 0, TrsCudaStream(stream), rows, cols,
              filled, x, from->stride, y, to->stride);
  else
    CU_LAUNCH((convert_kernel<1, From, To>), blocks, TRS_MATRIX_THREADS, 0, TrsCudaStream(stream), rows, cols,
              filled, x, from->stride, y, to->stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsConvertMatrixCuda(TrsStream stream, int64_t rows, int64_t cols, int64_t filled,
                                    TrsMatrix from, TrsMatrix to)
{
  PetscFunctionBegin;
  if (from.type == TRS_FP32 && to.type == TRS_BF16)
    PetscCall((convert_matrix<float, Bf16>(stream, rows, cols, filled, &from, &to)));
  else if (from.type == TRS_BF16 && to.type == TRS_FP32)
    PetscCall((convert_matrix<Bf16, float>(stream, rows, cols, filled, &from, &to)));
  else
    SETERRQ(PETSC_COMM_SELF, TRS_ERR_INTERNAL, "no matrix of %s from one of %s", TrsDTypeName(to.type),
            TrsDTypeName(from.type));
  PetscFunctionReturn(PETSC_SUCCESS);
}
