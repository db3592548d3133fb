/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Matrix products by cuBLASLt (gemm_choice_cuda.cu), with bias and ReLU in its epilogue. If cuBLASLt
  is missing or has no kernel for a shape, our own tiled kernel is used.
*/
#include "gpu/compute_cuda.h"
#include "gpu/device/device_cuda.h"
#include "gpu/gemm/gemm_choice_cuda.h"
#include "gpu/gemm/ways_cuda.h"
#include "gpu/wide_cuda.h"

#include <stdio.h>
#include <string.h>

static struct {
  bool asked;              /* the field blas is set */
  const TrsCublasLt *blas; /* NULL if our own kernel is used */
} state;
static TrsGemmRules rules = {TRS_PRECISION_FP32, 1, {0, NULL, NULL}};

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
  TrsWaysForget(static_cast<PetscBool>(rules.most_algorithms > 1));
  state.asked = false; /* read the environment again, because it may have changed */
  PetscCheck(precision == TRS_PRECISION_FP32 || library(), PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-dense_precision: tf32 and bf16 need cuBLASLt: %s", TrsCublasLtMissing());
  rules.precision = precision;
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsDType TrsOperandTypeCuda(void)
{
  return rules.precision == TRS_PRECISION_BF16 ? TRS_BF16 : TRS_FP32;
}

/* In cuBLASLt's mask, each row has a multiple of 128 bits. */
int64_t TrsReluMaskBytesCuda(int64_t out)
{
  return library() ? (out + 127) / 128 * 16 : 0;
}

PetscErrorCode TrsProductAlgorithmsCuda(int most)
{
  PetscFunctionBegin;
  PetscCall(TrsGemmChoicesForget(state.blas));
  rules.most_algorithms = most;
  TrsWaysForget(static_cast<PetscBool>(most > 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductTableCuda(TrsProductTable *table, const char **missing)
{
  static char key[TRS_PRODUCT_KEY];

  PetscFunctionBegin;
  *missing = NULL;
  PetscCall(TrsGemmChoicesForget(state.blas));
  PetscCall(TrsProductTableFree(&rules.table));
  rules.table = *table;
  *table = {0, NULL, NULL};
  if (rules.table.n == 0 || !library()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsGemmKey(library(), rules.precision, key));
  if (!TrsProductTableHas(&rules.table, key)) *missing = key;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsProductChoicesCuda(void)
{
  static char text[TRS_GEMM_TEXT];

  text[0] = '\0';
  TrsWaysText(text, sizeof(text));
  strncat(text, TrsGemmChoicesText(), sizeof(text) - 1 - strlen(text));
  return text;
}

PetscErrorCode TrsProductTimesCuda(TrsStream stream,
                                   PetscErrorCode (*tell)(void *context, const TrsProductTime *time),
                                   void *context)
{
  PetscFunctionBegin;
  if (library()) PetscCall(TrsGemmChoicesTime(library(), &rules, stream, tell, context));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsProductLibraryCuda(void)
{
  static const char *const rounded[] = {"", ", operands rounded to tf32", ", operands in bf16"};
  static char text[512];
  const TrsCublasLt *blas = library();
  const size_t version = blas ? blas->GetVersion() : 0;
  char own[64] = "", apart[64] = "", listed[64] = "", fused[64] = "";

  if (TrsGemmChoicesOwn() > 0)
    snprintf(own, sizeof(own), ", own kernel for %d shapes that it has none for", TrsGemmChoicesOwn());
  if (TrsGemmChoicesApart() > 0)
    snprintf(apart, sizeof(apart), ", masks and sums apart for %d shapes", TrsGemmChoicesApart());
  if (TrsGemmChoicesListed() > 0)
    snprintf(listed, sizeof(listed), ", algorithms of -dense_product_table for %d shapes",
             TrsGemmChoicesListed());
  if (TrsWaysFused() > 0)
    snprintf(fused, sizeof(fused), ", own kernel for cross layers of %d shapes", TrsWaysFused());
  if (blas)
    snprintf(text, sizeof(text), "cuBLASLt %zu.%zu.%zu%s%s%s%s%s", version / 10000, version / 100 % 100,
             version % 100, rounded[rules.precision], own, apart, listed, fused);
  else
    snprintf(text, sizeof(text), "own kernel for matrix products, slower than cuBLASLt: %s",
             TrsCublasLtMissing());
  return text;
}

/* --- without cuBLASLt --- */

enum { TILE = 64, DEPTH = 16, OWN_THREADS = 256, EACH = 4 };

template <class T> struct Operand {
  const T *data;
  int64_t row, col; /* element (r, c) is data[r * row + c * col] */
};

template <class T>
static __device__ __forceinline__ float element(Operand<T> x, int64_t r, int64_t c, int64_t rows,
                                                int64_t cols)
{
  return r < rows && c < cols ? to_float(x.data[r * x.row + c * x.col]) : 0.0f;
}

/*
  A thread block computes a tile of 64 x 64 elements, and each thread 4 x 4 of them. Shared memory
  holds 16 columns of A and 16 rows of B at a time. Sums run over k in order. A is read n / 64
  times, and B m / 64 times.
*/
template <class T, class R>
static __global__ void __launch_bounds__(OWN_THREADS)
    own_kernel(int64_t m, int64_t n, int64_t k, float alpha, Operand<T> a, Operand<T> b, float beta,
               const R *added, R *c, int64_t ldc, const R *bias, int relu)
{
  __shared__ float strip_a[DEPTH][TILE + 1], strip_b[DEPTH][TILE + 1];
  const int thread = static_cast<int>(threadIdx.x), tr = thread / (TILE / EACH), tc = thread % (TILE / EACH);
  const int64_t r0 = static_cast<int64_t>(blockIdx.y) * TILE, c0 = static_cast<int64_t>(blockIdx.x) * TILE;
  float sum[EACH][EACH] = {};

  for (int64_t k0 = 0; k0 < k; k0 += DEPTH) {
    for (int i = thread; i < TILE * DEPTH; i += OWN_THREADS) {
      /* neighbouring threads read adjacent elements */
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
      if (beta != 0.0f) x += beta * to_float(added[r * ldc + col]);
      if (bias) x += to_float(bias[col]);
      from_float(relu && x <= 0.0f ? 0.0f : x, &c[r * ldc + col]);
    }
}

template <class T, class R> static PetscErrorCode own_product(TrsStream stream, const TrsProduct *p)
{
  const int64_t lda = p->a.stride, ldb = p->b.stride, ldc = p->c.stride;
  const Operand<T> a = {static_cast<const T *>(p->a.data), p->trans_a ? 1 : lda, p->trans_a ? lda : 1};
  const Operand<T> b = {static_cast<const T *>(p->b.data), p->trans_b ? 1 : ldb, p->trans_b ? ldb : 1};
  const R *const added = static_cast<const R *>(TrsProductAdded(p));
  R *const c = static_cast<R *>(p->c.data);
  /* largest second dimension of a CUDA grid */
  const int64_t tiles_m = (p->m + TILE - 1) / TILE, most = 65535;

  PetscFunctionBegin;
  for (int64_t first = 0; first < tiles_m; first += most) {
    const int64_t row = first * TILE, rows = PetscMin(p->m - row, most * TILE);
    const dim3 grid(static_cast<unsigned>((p->n + TILE - 1) / TILE),
                    static_cast<unsigned>((rows + TILE - 1) / TILE));

    CU_LAUNCH((own_kernel<T, R>), grid, OWN_THREADS, 0, TrsCudaStream(stream), rows, p->n, p->k, p->alpha,
              (Operand<T>{a.data + row * a.row, a.row, a.col}), b, p->beta, added + row * ldc, c + row * ldc,
              ldc, static_cast<const R *>(p->bias), p->activation == TRS_ACTIVATION_RELU);
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- any product --- */

/* Row stride, in elements, of the bf16 copy of an operand. Rows begin at multiples of 16 bytes. */
static int64_t bf16_stride(int64_t cols)
{
  return (cols + 7) / 8 * 8;
}

/*
  Convert fp32 operands to bf16 in the stream's scratch memory, behind cuBLASLt's workspace.
  Rounding is the same as in the CPU's products.
*/
static PetscErrorCode narrow_operands(TrsStream stream, TrsProduct *p)
{
  struct {
    TrsMatrix *matrix;
    int64_t rows, cols;
  } const operand[] = {{&p->a, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k},
                       {&p->b, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n}};
  int64_t bytes = TRS_GEMM_WORKSPACE_BYTES;
  void *scratch;

  PetscFunctionBegin;
  for (const auto &o : operand)
    if (o.matrix->type == TRS_FP32) bytes += o.rows * bf16_stride(o.cols) * 2;
  if (bytes == TRS_GEMM_WORKSPACE_BYTES) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsCudaStreamScratch(stream, bytes, &scratch));
  bytes = TRS_GEMM_WORKSPACE_BYTES;
  for (const auto &o : operand) {
    const TrsMatrix to = {TRS_BF16, bf16_stride(o.cols), static_cast<char *>(scratch) + bytes};

    if (o.matrix->type != TRS_FP32) continue;
    PetscCall(TrsConvertMatrixCuda(stream, o.rows, o.cols, o.cols, *o.matrix, to));
    *o.matrix = to;
    bytes += o.rows * to.stride * 2;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductCuda(TrsStream stream, const TrsProduct *product, bool *fused)
{
  const TrsCublasLt *blas = library();
  const TrsGemmChoice *choice = NULL;
  TrsProduct p = *product;

  PetscFunctionBegin;
  if (fused) *fused = false;
  PetscCheck(p.bias || p.activation == TRS_ACTIVATION_NONE, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "a product's activation without a bias");
  if (p.m <= 0 || p.n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (p.k <= 0) /* without samples the operands are not read, and their types may differ */
    p.a.type = p.b.type = p.c.type;
  else if (rules.precision == TRS_PRECISION_BF16)
    PetscCall(narrow_operands(stream, &p));
  PetscCheck(p.a.type == p.b.type && (p.c.type == TRS_FP32 || p.a.type == TRS_BF16), PETSC_COMM_SELF,
             TRS_ERR_INTERNAL, "a product of %s and %s to %s", TrsDTypeName(p.a.type), TrsDTypeName(p.b.type),
             TrsDTypeName(p.c.type));
  if (blas && fused && TrsGemmCanFuse(&p)) {
    PetscCall(TrsGemmChoiceFind(blas, &rules, stream, &p, &choice));
    *fused = choice != NULL;
  }
  if (!choice) {
    p.mask.data = p.sums = NULL;
    if (blas && p.k > 0) PetscCall(TrsGemmChoiceFind(blas, &rules, stream, &p, &choice));
  }
  if (choice)
    PetscCall(TrsGemmChoiceMultiply(blas, stream, choice, &p));
  else if (p.a.type == TRS_FP32)
    PetscCall((own_product<float, float>(stream, &p)));
  else if (p.c.type == TRS_FP32)
    PetscCall((own_product<Bf16, float>(stream, &p)));
  else
    PetscCall((own_product<Bf16, Bf16>(stream, &p)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMultiplyCuda(TrsStream stream, const TrsMatrixProduct *product)
{
  const TrsProduct p = {*product, NULL, TRS_ACTIVATION_NONE, NULL};

  PetscFunctionBegin;
  PetscCall(TrsProductCuda(stream, &p, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
