/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Matrix products by cuBLASLt with bias and ReLU in its epilogue; where there is no cuBLASLt, by a tiled kernel of our own.

  cuBLASLt sees row-major matrices as their transposes: C' = op(B)' op(A)', so our columns are its rows, and its bias, one number a row, is ours.
  What it chose for a shape is kept, as are handle and workspace: they are the process's, as the library's state is. All calls come from the main thread.
*/
#include "gpu/cublaslt_library.h"
#include "gpu/dense_cuda.h"
#include "gpu/device_cuda.h"
#include "gpu/gemm_cuda.h"

#include <string.h>

enum { TRS_GEMM_CHOICES = 256, TRS_GEMM_STREAMS = 8 };
static const int64_t workspace_bytes = (int64_t)32 << 20; /* as NVIDIA advises for its newest GPUs */

/*
  What a choice depends on, and nothing else: the heuristic is asked for descriptions, layouts and preferences made of these numbers, before the description
  has a pointer (that of the bias), always with the same room for scratch, and its answer for a shape does not change with what was asked before, nor when
  it is asked again after the choice made way for others. So a product's bits are a function of its shape and alignment on GPUs of one architecture and
  number of SMs, of one version of the library: cuBLASLt draws no algorithm by itself, and we give it a workspace that no other stream uses.

  -reproducible relies on it: a block of samples (train/blockwise.h) has the shapes of every other block, whichever rank it is on. Its operands are the
  model's parameters, gradients and activations, which lie alike on all ranks, and samples that begin at multiples of 64 rows in memory of their own, so that
  `alignment`, too, is the same for all blocks.
*/
struct Shape {
  int64_t m, n, k, lda, ldb, ldc;
  int32_t trans_a, trans_b, epilogue, add, alignment, precision;
};

struct Choice {
  Shape shape;
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
};

struct StreamScratch {
  TrsStream stream;
  TrsDeviceBuffer buffer;
};

static struct {
  cublasLtHandle_t handle;
  int n_choices, n_streams;
  Choice choice[TRS_GEMM_CHOICES];
  StreamScratch scratch[TRS_GEMM_STREAMS];
  TrsDensePrecision precision;
} state;

static const TrsDeviceOps *const device = &trs_device_cuda;

#define CALL_BLAS(...) \
  do { \
    const cublasStatus_t status_ = (__VA_ARGS__); \
    PetscCheck(status_ == CUBLAS_STATUS_SUCCESS, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, \
               "cuBLASLt: status %d from %s", static_cast<int>(status_), #__VA_ARGS__); \
  } while (0)

PetscErrorCode TrsDensePrecisionCuda(TrsDensePrecision precision)
{
  PetscFunctionBegin;
  PetscCheck(precision == TRS_PRECISION_FP32 || TrsCublasLtOpen(), PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-dense_precision: tf32 and bf16 need cuBLASLt (libcublasLt.so), which was not found");
  state.precision = precision;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseScratch(TrsStream stream, int64_t bytes, void **scratch)
{
  int i = 0;

  PetscFunctionBegin;
  while (i < state.n_streams && state.scratch[i].stream != stream) i++;
  PetscCheck(i < TRS_GEMM_STREAMS, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "dense kernels on more than %d streams",
             TRS_GEMM_STREAMS);
  if (i == state.n_streams) state.scratch[state.n_streams++].stream = stream;
  PetscCall(TrsDeviceBufferReserve(device, &state.scratch[i].buffer, bytes));
  *scratch = state.scratch[i].buffer.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- without cuBLASLt --- */

enum { TILE = 64, DEPTH = 16, OWN_THREADS = 256, EACH = 4 };

struct Operand {
  const float *data;
  int64_t row, col; /* element (r, c) is data[r * row + c * col] */
};

static __device__ __forceinline__ float element(Operand x, int64_t r, int64_t c, int64_t rows, int64_t cols)
{
  return r < rows && c < cols ? x.data[r * x.row + c * x.col] : 0.0f;
}

/*
  A block makes a tile of 64 x 64, a thread 4 x 4 of it, from strips of 16 columns of A and rows of B in shared memory. Sums run over k in order. Reads A n / 64
  and B m / 64 times.
*/
static __global__ void __launch_bounds__(OWN_THREADS)
    own_kernel(int64_t m, int64_t n, int64_t k, float alpha, Operand a, Operand b, float beta, float *c,
               int64_t ldc, const float *bias, int relu)
{
  __shared__ float strip_a[DEPTH][TILE + 1], strip_b[DEPTH][TILE + 1];
  const int thread = static_cast<int>(threadIdx.x), tr = thread / (TILE / EACH), tc = thread % (TILE / EACH);
  const int64_t r0 = static_cast<int64_t>(blockIdx.y) * TILE, c0 = static_cast<int64_t>(blockIdx.x) * TILE;
  float sum[EACH][EACH] = {};

  for (int64_t k0 = 0; k0 < k; k0 += DEPTH) {
    for (int i = thread; i < TILE * DEPTH; i += OWN_THREADS) {
      /* neighbouring threads take what lies side by side in memory */
      const int ra = a.col == 1 ? i / DEPTH : i % TILE, ka = a.col == 1 ? i % DEPTH : i / TILE;
      const int cb = b.col == 1 ? i % TILE : i / DEPTH, kb = b.col == 1 ? i / TILE : i % DEPTH;

      strip_a[ka][ra] = element(a, r0 + ra, k0 + ka, m, k);
      strip_b[kb][cb] = element(b, k0 + kb, c0 + cb, k, n);
    }
    __syncthreads();
    for (int d = 0; d < DEPTH; d++)
      for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) sum[i][j] += strip_a[d][tr * EACH + i] * strip_b[d][tc * EACH + j];
    __syncthreads();
  }
  for (int i = 0; i < EACH; i++)
    for (int j = 0; j < EACH; j++) {
      const int64_t r = r0 + tr * EACH + i, col = c0 + tc * EACH + j;
      float x = alpha * sum[i][j];

      if (r >= m || col >= n) continue;
      if (beta != 0.0f) x += beta * c[r * ldc + col];
      if (bias) x += bias[col];
      c[r * ldc + col] = relu && x <= 0.0f ? 0.0f : x;
    }
}

static PetscErrorCode own_product(TrsStream stream, const TrsProduct *p)
{
  const Operand a = {static_cast<const float *>(p->a), p->trans_a ? 1 : p->lda, p->trans_a ? p->lda : 1};
  const Operand b = {static_cast<const float *>(p->b), p->trans_b ? 1 : p->ldb, p->trans_b ? p->ldb : 1};
  const int64_t tiles_m = (p->m + TILE - 1) / TILE, most = 65535; /* of a grid's second dimension */

  PetscFunctionBegin;
  for (int64_t first = 0; first < tiles_m; first += most) {
    const int64_t row = first * TILE, rows = PetscMin(p->m - row, most * TILE);
    const dim3 grid(static_cast<unsigned>((p->n + TILE - 1) / TILE),
                    static_cast<unsigned>((rows + TILE - 1) / TILE));

    CU_LAUNCH(own_kernel, grid, OWN_THREADS, 0, TrsCudaStream(stream), rows, p->n, p->k, p->alpha,
              (Operand{a.data + row * a.row, a.row, a.col}), b, p->beta, p->c + row * p->ldc, p->ldc, p->bias,
              p->activation == TRS_ACTIVATION_RELU);
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- with it --- */

/* The largest power of two up to 16 that divides all addresses and strides, in bytes. */
static int32_t alignment_of(const TrsProduct *p)
{
  const uintptr_t bits = reinterpret_cast<uintptr_t>(p->a) | reinterpret_cast<uintptr_t>(p->b) |
                         reinterpret_cast<uintptr_t>(p->c) | reinterpret_cast<uintptr_t>(p->bias) |
                         static_cast<uintptr_t>(4 * (p->lda | p->ldb | p->ldc));

  return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : 4;
}

static cublasComputeType_t compute_type()
{
  return state.precision == TRS_PRECISION_TF32   ? CUBLAS_COMPUTE_32F_FAST_TF32
         : state.precision == TRS_PRECISION_BF16 ? CUBLAS_COMPUTE_32F_FAST_16BF
                                                 : CUBLAS_COMPUTE_32F;
}

static PetscErrorCode layout(const TrsCublasLt *blas, int64_t rows, int64_t cols, int64_t ld,
                             cublasLtMatrixLayout_t *made)
{
  PetscFunctionBegin;
  CALL_BLAS(blas->MatrixLayoutCreate(made, CUDA_R_32F, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(cols), ld));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode describe(const TrsCublasLt *blas, const Shape *shape, Choice *choice)
{
  const cublasOperation_t op_a = shape->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          op_b = shape->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasLtEpilogue_t epilogue = static_cast<cublasLtEpilogue_t>(shape->epilogue);

  PetscFunctionBegin;
  choice->shape = *shape;
  CALL_BLAS(blas->MatmulDescCreate(&choice->description, compute_type(), CUDA_R_32F));
  CALL_BLAS(
      blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof(op_a)));
  CALL_BLAS(
      blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof(op_b)));
  CALL_BLAS(blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof(epilogue)));
  PetscCall(layout(blas, shape->trans_b ? shape->k : shape->n, shape->trans_b ? shape->n : shape->k,
                   shape->ldb, &choice->a));
  PetscCall(layout(blas, shape->trans_a ? shape->m : shape->k, shape->trans_a ? shape->k : shape->m,
                   shape->lda, &choice->b));
  PetscCall(layout(blas, shape->n, shape->m, shape->ldc, &choice->c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode choose(const TrsCublasLt *blas, Choice *choice)
{
  const uint32_t alignment = static_cast<uint32_t>(choice->shape.alignment);
  const uint64_t workspace = static_cast<uint64_t>(workspace_bytes);
  static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t result;
  int n_found = 0;

  PetscFunctionBegin;
  CALL_BLAS(blas->MatmulPreferenceCreate(&preference));
  CALL_BLAS(blas->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace, sizeof(workspace)));
  for (cublasLtMatmulPreferenceAttributes_t attribute : aligned)
    CALL_BLAS(blas->MatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof(alignment)));
  CALL_BLAS(blas->MatmulAlgoGetHeuristic(state.handle, choice->description, choice->a, choice->b, choice->c,
                                         choice->c, preference, 1, &result, &n_found));
  CALL_BLAS(blas->MatmulPreferenceDestroy(preference));
  PetscCheck(n_found == 1, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "cuBLASLt has no algorithm for a product of %" PRId64 " x %" PRId64 " x %" PRId64,
             choice->shape.m, choice->shape.n, choice->shape.k);
  choice->algorithm = result.algo;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forget(const TrsCublasLt *blas, Choice *choice)
{
  PetscFunctionBegin;
  CALL_BLAS(blas->MatmulDescDestroy(choice->description));
  CALL_BLAS(blas->MatrixLayoutDestroy(choice->a));
  CALL_BLAS(blas->MatrixLayoutDestroy(choice->b));
  CALL_BLAS(blas->MatrixLayoutDestroy(choice->c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The choice for the shape: kept, or made now in place of the oldest one's. */
static PetscErrorCode find(const TrsCublasLt *blas, const Shape *shape, Choice **found)
{
  Choice *choice;

  PetscFunctionBegin;
  for (int i = 0; i < PetscMin(state.n_choices, TRS_GEMM_CHOICES); i++) {
    *found = &state.choice[i];
    if (memcmp(&(*found)->shape, shape, sizeof(*shape)) == 0) PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!state.handle) CALL_BLAS(blas->Create(&state.handle));
  choice = &state.choice[state.n_choices % TRS_GEMM_CHOICES];
  if (state.n_choices >= TRS_GEMM_CHOICES) PetscCall(forget(blas, choice));
  PetscCall(describe(blas, shape, choice));
  PetscCall(choose(blas, choice));
  state.n_choices = state.n_choices < 2 * TRS_GEMM_CHOICES - 1 ? state.n_choices + 1 : TRS_GEMM_CHOICES;
  *found = choice;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *p)
{
  const TrsCublasLt *blas = TrsCublasLtOpen();
  Choice *choice = NULL;
  void *workspace = NULL;
  Shape shape;

  PetscFunctionBegin;
  if (p->m <= 0 || p->n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (!blas || p->k <= 0) {
    PetscCall(own_product(stream, p));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  memset(&shape, 0, sizeof(shape));
  shape = {p->m,
           p->n,
           p->k,
           p->lda,
           p->ldb,
           p->ldc,
           p->trans_a,
           p->trans_b,
           !p->bias                               ? CUBLASLT_EPILOGUE_DEFAULT
           : p->activation == TRS_ACTIVATION_RELU ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                  : CUBLASLT_EPILOGUE_BIAS,
           p->beta != 0.0f,
           alignment_of(p),
           state.precision};
  PetscCall(find(blas, &shape, &choice));
  if (p->bias)
    CALL_BLAS(blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias,
                                           sizeof(p->bias)));
  PetscCall(TrsDenseScratch(stream, workspace_bytes, &workspace));
  CALL_BLAS(blas->Matmul(state.handle, choice->description, &p->alpha, p->b, choice->a, p->a, choice->b,
                         &p->beta, p->c, choice->c, p->c, choice->c, &choice->algorithm, workspace,
                         static_cast<size_t>(workspace_bytes), TrsCudaStream(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGemmCuda(TrsStream stream, PetscBool trans_a, PetscBool trans_b, int64_t m, int64_t n,
                           int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                           float beta, float *c, int64_t ldc)
{
  const TrsProduct product = {
      {trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc}, NULL, TRS_ACTIVATION_NONE};

  PetscFunctionBegin;
  PetscCall(TrsProductCuda(stream, &product));
  PetscFunctionReturn(PETSC_SUCCESS);
}
