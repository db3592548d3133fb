/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Dense layers on the GPU. gemm_cuda.cu multiplies matrices, and the memory-bound kernels of this
  file do the rest. If memory is aligned to 16 bytes, a thread handles four columns, with the same
  sums in the same order.
*/
#include "gpu/column_sums_cuda.h"
#include "gpu/compute_cuda.h"
#include "gpu/device/device_cuda.h"
#include "gpu/elements_cuda.h"
#include "gpu/gemm/gemm_cuda.h"
#include "gpu/one_unit_cuda.h"

/* --- column sums --- */

static __device__ __forceinline__ float masked(float y, float dy)
{
  return y <= 0.0f ? 0.0f : dy;
}

static __device__ __forceinline__ float4 masked(float4 y, float4 dy)
{
  return make_float4(masked(y.x, dy.x), masked(y.y, dy.y), masked(y.z, dy.z), masked(y.w, dy.w));
}

/* Compute dy = y > 0 ? dy : 0 and sum the columns of dy. Strides are in numbers. */
template <class T, class S> struct Masked {
  typedef T Type;
  enum { ROWS = 4, COLUMNS = sizeof(T) / sizeof(float) };
  struct Loaded {
    T y, dy;
  };
  const S *y; /* NULL if there is no mask */
  int64_t y_stride;
  S *dy;
  int64_t dy_stride;
  __device__ __forceinline__ Loaded load(int64_t r, int64_t c) const
  {
    Loaded of = {};

    load_as(dy + r * dy_stride + COLUMNS * c, &of.dy);
    if (y) load_as(y + r * y_stride + COLUMNS * c, &of.y);
    return of;
  }
  __device__ __forceinline__ T use(int64_t r, int64_t c, const Loaded &of) const
  {
    if (!y) return of.dy;
    const T value = masked(of.y, of.dy);
    keep_as(dy + r * dy_stride + COLUMNS * c, value);
    return value;
  }
};

/* --- linear layers --- */

/* Make the mask of y. A thread makes one byte of the mask from eight numbers of y. */
template <class S>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    make_mask_kernel(int64_t rows, int64_t cols, const S *y, int64_t y_stride, uint8_t *mask,
                     int64_t row_bytes)
{
  const int64_t bytes = (cols + 7) / 8;

  for (int64_t i = TrsCudaFirst(); i < rows * bytes; i += TrsCudaStep()) {
    const int64_t r = i / bytes, c = i % bytes * 8;
    unsigned bits = 0;

    for (int k = 0; k < 8 && c + k < cols; k++)
      bits |= to_float(y[r * y_stride + c + k]) <= 0.0f ? 0u : 1u << k; /* the bit is 1 for NaN */
    mask[r * row_bytes + c / 8] = static_cast<uint8_t>(bits);
  }
}

/*
  Set numbers of dx to 0 where the mask's bit is 0. A thread handles one byte of the mask. WIDE
  means that each byte has eight numbers, which are aligned to four.
*/
template <class S, bool WIDE>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    apply_mask_kernel(int64_t rows, int64_t cols, const uint8_t *mask, int64_t row_bytes, S *dx,
                      int64_t dx_stride)
{
  const int64_t bytes = (cols + 7) / 8;

  for (int64_t i = TrsCudaFirst(); i < rows * bytes; i += TrsCudaStep()) {
    const int64_t r = i / bytes, c = i % bytes * 8;
    const unsigned bits = mask[r * row_bytes + c / 8];
    S *const to = dx + r * dx_stride + c;
    float x[8];

    if (bits == 0xffu) continue;
    if constexpr (WIDE) {
      load_numbers<8>(to, x);
      for (int k = 0; k < 8; k++) x[k] = bits >> k & 1 ? x[k] : 0.0f;
      keep_numbers<4>(to, x);
      keep_numbers<4>(to + 4, x + 4);
    } else {
      for (int k = 0; k < 8 && c + k < cols; k++)
        if (!(bits >> k & 1)) from_float(0.0f, &to[k]);
    }
  }
}

/* Make the mask of y, or apply the mask to dx, in a kernel of ours if cuBLASLt does not do it. */
template <class S>
static PetscErrorCode mask_apart(TrsStream stream, int64_t rows, int64_t cols, bool make, TrsMatrix matrix,
                                 TrsReluMask mask)
{
  uint8_t *const bits = static_cast<uint8_t *>(mask.data);
  S *const data = static_cast<S *>(matrix.data);
  const dim3 blocks = TrsCudaBlocks(rows * ((cols + 7) / 8), TRS_DENSE_THREADS);

  PetscFunctionBegin;
  if (rows <= 0 || cols <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (make)
    CU_LAUNCH((make_mask_kernel<S>), blocks, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), rows, cols, data,
              matrix.stride, bits, mask.row_bytes);
  else if (cols % 8 == 0 && has_fours(matrix))
    CU_LAUNCH((apply_mask_kernel<S, true>), blocks, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), rows, cols,
              bits, mask.row_bytes, data, matrix.stride);
  else
    CU_LAUNCH((apply_mask_kernel<S, false>), blocks, TRS_DENSE_THREADS, 0, TrsCudaStream(stream), rows, cols,
              bits, mask.row_bytes, data, matrix.stride);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Multiply matrices, and write or apply the product's mask in cuBLASLt or in a kernel afterwards.
*/
static PetscErrorCode masked_product(TrsStream stream, const TrsProduct *p)
{
  const bool make = p->activation == TRS_ACTIVATION_RELU;
  bool fused = false;

  PetscFunctionBegin;
  PetscCall(TrsProductCuda(stream, p, p->mask.data ? &fused : NULL));
  if (!p->mask.data || fused) PetscFunctionReturn(PETSC_SUCCESS);
  if (p->c.type == TRS_BF16)
    PetscCall(mask_apart<Bf16>(stream, p->m, p->n, make, p->c, p->mask));
  else
    PetscCall(mask_apart<float>(stream, p->m, p->n, make, p->c, p->mask));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLinearForwardCuda(TrsStream stream, const TrsLinear *l)
{
  TrsProduct product = {{PETSC_FALSE, PETSC_TRUE, l->batch, l->out, l->in, 1.0f, l->x, l->weight, 0.0f, l->y},
                        l->bias,
                        l->activation,
                        NULL};

  PetscFunctionBegin;
  if (TrsUnitTakes(l)) {
    PetscCall(TrsUnitForwardCuda(stream, l));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (l->masks) product.mask = l->masks->y;
  PetscCall(masked_product(stream, &product));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class S>
static PetscErrorCode mask_and_sum_of(TrsStream stream, int64_t rows, int64_t cols, const TrsMatrix *y,
                                      const TrsMatrix *dy, float *sums)
{
  const S *const mask = y ? static_cast<const S *>(y->data) : NULL;
  const int64_t y_stride = y ? y->stride : 0;
  S *const to = static_cast<S *>(dy->data);

  PetscFunctionBegin;
  if (is_wide({sums}, y_stride | dy->stride | cols) &&
      (reinterpret_cast<uintptr_t>(mask) | reinterpret_cast<uintptr_t>(to)) % (4 * sizeof(S)) == 0)
    PetscCall(
        visit_and_sum(stream, rows, cols / 4, (Masked<float4, S>{mask, y_stride, to, dy->stride}), sums));
  else
    PetscCall(visit_and_sum(stream, rows, cols, (Masked<float, S>{mask, y_stride, to, dy->stride}), sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode mask_and_sum(TrsStream stream, int64_t rows, int64_t cols, const TrsMatrix *y,
                                   const TrsMatrix *dy, float *sums)
{
  PetscFunctionBegin;
  PetscCheck(!y || y->type == dy->type, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a gradient in %s of %s",
             TrsDTypeName(dy->type), TrsDTypeName(y->type));
  if (dy->type == TRS_BF16)
    PetscCall(mask_and_sum_of<Bf16>(stream, rows, cols, y, dy, sums));
  else
    PetscCall(mask_and_sum_of<float>(stream, rows, cols, y, dy, sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsColumnSumsCuda(TrsStream stream, int64_t rows, int64_t cols, const TrsMatrix *dy,
                                 float *sums)
{
  PetscFunctionBegin;
  PetscCall(mask_and_sum(stream, rows, cols, NULL, dy, sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If dy must be masked, one pass over dy masks it and sums the bias gradient. If not, the matrix
  product for the weight gradient also sums dy. There is one exception: if dy is float and products
  round it to bf16, the product would sum rounded numbers, so the pass over dy remains. A layer of
  one unit has a kernel of its own.
*/
PetscErrorCode TrsLinearBackwardCuda(TrsStream stream, const TrsLinear *l,
                                     const TrsLinearGradients *gradients)
{
  const TrsMatrix dy = gradients->dy, dx = gradients->dx;
  const TrsReluMasks *const masks = l->masks;
  const int64_t batch = l->batch, in = l->in, out = l->out;
  const bool relu = l->activation == TRS_ACTIVATION_RELU && !(masks && masks->y.data);
  const bool sums = masks && !relu && (dy.type == TRS_BF16 || TrsOperandTypeCuda() == TRS_FP32);
  float *const grad_bias = gradients->grad_bias;
  TrsProduct to_weight = {{PETSC_TRUE, PETSC_FALSE, out, in, batch, 1.0f, dy, l->x, 0.0f,
                           TrsFloats(gradients->grad_weight, in)},
                          NULL,
                          TRS_ACTIVATION_NONE,
                          NULL},
             to_input = {{PETSC_FALSE, PETSC_FALSE, batch, in, out, 1.0f, dy, l->weight, 0.0f, dx},
                         NULL,
                         TRS_ACTIVATION_NONE,
                         NULL};
  bool summed = false, done = false;

  PetscFunctionBegin;
  if (TrsUnitTakes(l)) PetscCall(TrsUnitBackwardCuda(stream, l, gradients, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  if (relu) PetscCall(mask_and_sum(stream, batch, out, &l->y, &dy, grad_bias));
  if (sums) to_weight.sums = grad_bias;
  PetscCall(TrsProductCuda(stream, &to_weight, sums ? &summed : NULL));
  if (!relu && !summed) PetscCall(mask_and_sum(stream, batch, out, NULL, &dy, grad_bias));
  if (masks) to_input.mask = masks->x;
  if (dx.data) PetscCall(masked_product(stream, &to_input));
  PetscFunctionReturn(PETSC_SUCCESS);
}
