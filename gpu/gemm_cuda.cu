/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Matrix products by cuBLASLt with bias and ReLU in its epilogue. Without cuBLASLt, or for a shape
  for which it has no kernel, a tiled kernel of our own makes the product.

  cuBLASLt sees row-major matrices as their transposes: C' = op(B)' op(A)'. So our columns are its
  rows, and its bias, one number a row, is ours. Its choice for a shape is kept, and so is its
  handle. Both belong to the process, as the library's state does. All calls come from the main
  thread.
*/
#include "gpu/compute_cuda.h"
#include "gpu/cublaslt_library.h"
#include "gpu/device_cuda.h"
#include "gpu/gemm_cuda.h"

#include <stdio.h>
#include <string.h>

enum { TRS_GEMM_CHOICES = 256 };
/* as NVIDIA advises for its newest GPUs */
static const int64_t workspace_bytes = (int64_t)32 << 20;

/*
  Everything on which a choice depends, and nothing else; compared as bytes. Alignments are those of
  addresses and strides, in bytes, up to a vector's 16.

  The heuristic gets descriptions, layouts and preferences made of these numbers (of the bias it
  reads only the alignment), always with the same amount of scratch. Its answer for a shape does not
  depend on earlier questions, and it gives the same answer when it is asked again for a choice that
  made way for others. If it has no answer, our kernel is the choice. So the bits of a product are a
  function of its shape and alignment, on GPUs of one architecture and number of SMs, and for one
  version of the library: cuBLASLt draws no algorithm by itself, and it gets a workspace that no
  other stream uses.

  -reproducible relies on this. A sample block (train/blockwise.h) has the shapes of every other
  sample block, on any rank. Its operands are the model's parameters, gradients and activations,
  which lie alike on all ranks, and samples that begin at multiples of 64 rows in memory of their
  own. So the alignments, too, are the same for all sample blocks.
*/
struct Shape {
  int64_t m, n, k, lda, ldb, ldc;
  int32_t trans_a, trans_b, epilogue, add, alignment_a, alignment_b, alignment_c, alignment_bias;
};

struct Choice {
  Shape shape;
  bool own; /* cuBLASLt has no kernel */
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
};

static struct {
  bool asked;              /* the fields below are known */
  const TrsCublasLt *blas; /* NULL: our own kernel is used */
  cublasLtHandle_t handle;
  int n_choices, n_own, last; /* choices made; choices without a kernel; the choice used last */
  Choice choice[TRS_GEMM_CHOICES];
  TrsDensePrecision precision;
} state;

#define CALL_BLAS(...) \
  do { \
    const cublasStatus_t status_ = (__VA_ARGS__); \
    PetscCheck(status_ == CUBLAS_STATUS_SUCCESS, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, \
               "cuBLASLt: status %d from %s", static_cast<int>(status_), #__VA_ARGS__); \
  } while (0)

static const TrsCublasLt *library()
{
  if (!state.asked) state.blas = TrsCublasLtOpen();
  state.asked = true;
  return state.blas;
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

static PetscErrorCode forget_all()
{
  PetscFunctionBegin;
  for (int i = 0; i < state.n_choices; i++) PetscCall(forget(state.blas, &state.choice[i]));
  state.n_choices = state.n_own = state.last = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDensePrecisionCuda(TrsDensePrecision precision)
{
  PetscFunctionBegin;
  PetscCall(forget_all());
  state.asked = false; /* the environment may have changed */
  PetscCheck(precision == TRS_PRECISION_FP32 || library(), PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-dense_precision: tf32 and bf16 need cuBLASLt: %s", TrsCublasLtMissing());
  state.precision = precision;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsProductLibraryCuda(void)
{
  static const char *const rounded[] = {"", ", operands rounded to tf32", ", operands rounded to bf16"};
  static char text[512];
  const TrsCublasLt *blas = library();
  const size_t version = blas ? blas->GetVersion() : 0;
  char own[64] = "";

  if (state.n_own > 0)
    snprintf(own, sizeof(own), ", own kernel for %d shapes that it has none for", state.n_own);
  if (blas)
    snprintf(text, sizeof(text), "cuBLASLt %zu.%zu.%zu%s%s", version / 10000, version / 100 % 100,
             version % 100, rounded[state.precision], own);
  else
    snprintf(text, sizeof(text), "own kernel for matrix products, slower than cuBLASLt: %s",
             TrsCublasLtMissing());
  return text;
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
  A thread block makes a tile of 64 x 64, and a thread 4 x 4 of it, from strips of 16 columns of A
  and rows of B in shared memory. Sums run over k in order. A is read n / 64 times, B m / 64 times.
*/
static __global__ void __launch_bounds__(OWN_THREADS)
    own_kernel(int64_t m, int64_t n, int64_t k, float alpha, Operand a, Operand b, float beta,
               const float *added, float *c, int64_t ldc, const float *bias, int relu)
{
  __shared__ float strip_a[DEPTH][TILE + 1], strip_b[DEPTH][TILE + 1];
  const int thread = static_cast<int>(threadIdx.x), tr = thread / (TILE / EACH), tc = thread % (TILE / EACH);
  const int64_t r0 = static_cast<int64_t>(blockIdx.y) * TILE, c0 = static_cast<int64_t>(blockIdx.x) * TILE;
  float sum[EACH][EACH] = {};

  for (int64_t k0 = 0; k0 < k; k0 += DEPTH) {
    for (int i = thread; i < TILE * DEPTH; i += OWN_THREADS) {
      /* neighbouring threads take elements that lie side by side in memory */
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
      if (beta != 0.0f) x += beta * added[r * ldc + col];
      if (bias) x += bias[col];
      c[r * ldc + col] = relu && x <= 0.0f ? 0.0f : x;
    }
}

/* The matrix that beta is a factor of. */
static const float *added_of(const TrsProduct *p)
{
  return p->added ? p->added : p->c;
}

static PetscErrorCode own_product(TrsStream stream, const TrsProduct *p)
{
  const Operand a = {static_cast<const float *>(p->a), p->trans_a ? 1 : p->lda, p->trans_a ? p->lda : 1};
  const Operand b = {static_cast<const float *>(p->b), p->trans_b ? 1 : p->ldb, p->trans_b ? p->ldb : 1};
  /* largest second dimension of a grid */
  const int64_t tiles_m = (p->m + TILE - 1) / TILE, most = 65535;

  PetscFunctionBegin;
  for (int64_t first = 0; first < tiles_m; first += most) {
    const int64_t row = first * TILE, rows = PetscMin(p->m - row, most * TILE);
    const dim3 grid(static_cast<unsigned>((p->n + TILE - 1) / TILE),
                    static_cast<unsigned>((rows + TILE - 1) / TILE));

    CU_LAUNCH(own_kernel, grid, OWN_THREADS, 0, TrsCudaStream(stream), rows, p->n, p->k, p->alpha,
              (Operand{a.data + row * a.row, a.row, a.col}), b, p->beta, added_of(p) + row * p->ldc,
              p->c + row * p->ldc, p->ldc, p->bias, p->activation == TRS_ACTIVATION_RELU);
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- with cuBLASLt --- */

/* The largest power of two up to 16 that divides address and stride, in bytes. */
static int32_t alignment_of(const void *address, int64_t stride)
{
  const uintptr_t bits = reinterpret_cast<uintptr_t>(address) | static_cast<uintptr_t>(4 * stride);

  return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : 4;
}

static Shape shape_of(const TrsProduct *p)
{
  Shape shape;

  memset(&shape, 0, sizeof(shape));
  shape.m = p->m;
  shape.n = p->n;
  shape.k = p->k;
  shape.lda = p->lda;
  shape.ldb = p->ldb;
  shape.ldc = p->ldc;
  shape.trans_a = p->trans_a;
  shape.trans_b = p->trans_b;
  shape.epilogue = !p->bias                               ? CUBLASLT_EPILOGUE_DEFAULT
                   : p->activation == TRS_ACTIVATION_RELU ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                          : CUBLASLT_EPILOGUE_BIAS;
  shape.add = p->beta != 0.0f;
  shape.alignment_a = alignment_of(p->a, p->lda);
  shape.alignment_b = alignment_of(p->b, p->ldb);
  shape.alignment_c = PetscMin(alignment_of(p->c, p->ldc), alignment_of(added_of(p), p->ldc));
  shape.alignment_bias = alignment_of(p->bias, 0);
  return shape;
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

/* Ask the heuristic. The bias is set, because the heuristic reads its alignment, too. */
static PetscErrorCode choose(const TrsCublasLt *blas, Choice *choice)
{
  const Shape *shape = &choice->shape;
  const uint64_t workspace = static_cast<uint64_t>(workspace_bytes);
  const struct { /* cuBLASLt's A is our B */
    cublasLtMatmulPreferenceAttributes_t attribute;
    uint32_t bytes;
  } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(shape->alignment_b)},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(shape->alignment_a)},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(shape->alignment_c)},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(shape->alignment_c)}};
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t result;
  cublasStatus_t status;
  int n_found = 0;

  PetscFunctionBegin;
  CALL_BLAS(blas->MatmulPreferenceCreate(&preference));
  CALL_BLAS(blas->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace, sizeof(workspace)));
  for (const auto &a : aligned)
    CALL_BLAS(blas->MatmulPreferenceSetAttribute(preference, a.attribute, &a.bytes, sizeof(a.bytes)));
  status = blas->MatmulAlgoGetHeuristic(state.handle, choice->description, choice->a, choice->b, choice->c,
                                        choice->c, preference, 1, &result, &n_found);
  CALL_BLAS(blas->MatmulPreferenceDestroy(preference));
  choice->own = status == CUBLAS_STATUS_NOT_SUPPORTED || n_found == 0 ||
                result.state == CUBLAS_STATUS_NOT_SUPPORTED;
  if (choice->own) {
    if (state.n_own++ == 0)
      fprintf(stderr,
              "trshard: info: cuBLASLt has no kernel for a product of %lld x %lld x %lld here: the program's "
              "own makes it, and "
              "others like it\n",
              static_cast<long long>(shape->m), static_cast<long long>(shape->n),
              static_cast<long long>(shape->k));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  CALL_BLAS(status);
  CALL_BLAS(result.state);
  choice->algorithm = result.algo;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_bias(const TrsCublasLt *blas, const Choice *choice, const float *bias)
{
  PetscFunctionBegin;
  if (bias)
    CALL_BLAS(blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                           sizeof(bias)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the choice for a shape. Steps repeat, so a kept choice most often follows the choice used
  last. A new shape gets a new choice.
*/
static PetscErrorCode find(const TrsCublasLt *blas, const Shape *shape, const float *bias, Choice **found)
{
  PetscFunctionBegin;
  for (int i = 1; i <= state.n_choices; i++) {
    const int at = (state.last + i) % state.n_choices;

    if (memcmp(&state.choice[at].shape, shape, sizeof(*shape)) != 0) continue;
    *found = &state.choice[state.last = at];
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!state.handle) CALL_BLAS(blas->Create(&state.handle));
  if (state.n_choices == TRS_GEMM_CHOICES) PetscCall(forget_all());
  *found = &state.choice[state.n_choices];
  PetscCall(describe(blas, shape, *found));
  PetscCall(set_bias(blas, *found, bias));
  PetscCall(choose(blas, *found));
  state.last = state.n_choices++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *p)
{
  const TrsCublasLt *blas = library();
  Choice *choice = NULL;
  void *workspace = NULL;

  PetscFunctionBegin;
  PetscCheck(p->bias || p->activation == TRS_ACTIVATION_NONE, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "a product's activation without a bias");
  if (p->m <= 0 || p->n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (blas && p->k > 0) {
    const Shape shape = shape_of(p);

    PetscCall(find(blas, &shape, p->bias, &choice));
  }
  if (!choice || choice->own) {
    PetscCall(own_product(stream, p));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(set_bias(blas, choice, p->bias));
  PetscCall(TrsCudaStreamScratch(stream, workspace_bytes, &workspace));
  CALL_BLAS(blas->Matmul(state.handle, choice->description, &p->alpha, p->b, choice->a, p->a, choice->b,
                         &p->beta, added_of(p), choice->c, p->c, choice->c, &choice->algorithm, workspace,
                         static_cast<size_t>(workspace_bytes), TrsCudaStream(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGemmCuda(TrsStream stream, PetscBool trans_a, PetscBool trans_b, int64_t m, int64_t n,
                           int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                           float beta, float *c, int64_t ldc)
{
  const TrsProduct product = {
      {trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc}, NULL, TRS_ACTIVATION_NONE, NULL};

  PetscFunctionBegin;
  PetscCall(TrsProductCuda(stream, &product));
  PetscFunctionReturn(PETSC_SUCCESS);
}
