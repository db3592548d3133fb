/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Matrix products by cuBLASLt (gemm_choice_cuda.cu) with bias and ReLU in its epilogue. Without
  cuBLASLt, or for a shape for which it has no kernel, a tiled kernel of our own makes the product.
*/
#include "gpu/compute_cuda.h"
#include "gpu/gemm_choice_cuda.h"

#include <stdio.h>

static struct {
  bool asked;              /* the field below is known */
  const TrsCublasLt *blas; /* NULL: our own kernel is used */
} state;
static TrsGemmRules rules = {TRS_PRECISION_FP32, 1};

static const TrsCublasLt *library()
{
  if (!state.asked) state.blas = TrsCublasLtOpen();
  state.asked = true;
  return state.blas;
}

PetscErrorCode TrsDensePrecisionCuda(TrsDensePrecision precision)
{
  PetscFunctionBegin;
  PetscCall(TrsGemmChoicesForget(state.blas));
  state.asked = false; /* the environment may have changed */
  PetscCheck(precision == TRS_PRECISION_FP32 || library(), PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-dense_precision: tf32 and bf16 need cuBLASLt: %s", TrsCublasLtMissing());
  rules.precision = precision;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductAlgorithmsCuda(int most)
{
  PetscFunctionBegin;
  PetscCall(TrsGemmChoicesForget(state.blas));
  rules.most_algorithms = most;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsProductChoicesCuda(void)
{
  return TrsGemmChoicesText();
}

const char *TrsProductLibraryCuda(void)
{
  static const char *const rounded[] = {"", ", operands rounded to tf32", ", operands rounded to bf16"};
  static char text[512];
  const TrsCublasLt *blas = library();
  const size_t version = blas ? blas->GetVersion() : 0;
  char own[64] = "";

  if (TrsGemmChoicesOwn() > 0)
    snprintf(own, sizeof(own), ", own kernel for %d shapes that it has none for", TrsGemmChoicesOwn());
  if (blas)
    snprintf(text, sizeof(text), "cuBLASLt %zu.%zu.%zu%s%s", version / 10000, version / 100 % 100,
             version % 100, rounded[rules.precision], own);
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
              (Operand{a.data + row * a.row, a.row, a.col}), b, p->beta, TrsProductAdded(p) + row * p->ldc,
              p->c + row * p->ldc, p->ldc, p->bias, p->activation == TRS_ACTIVATION_RELU);
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *p)
{
  const TrsCublasLt *blas = library();
  const TrsGemmChoice *choice = NULL;

  PetscFunctionBegin;
  PetscCheck(p->bias || p->activation == TRS_ACTIVATION_NONE, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "a product's activation without a bias");
  if (p->m <= 0 || p->n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (blas && p->k > 0) PetscCall(TrsGemmChoiceFind(blas, &rules, stream, p, &choice));
  if (choice)
    PetscCall(TrsGemmChoiceMultiply(blas, stream, choice, p));
  else
    PetscCall(own_product(stream, p));
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
