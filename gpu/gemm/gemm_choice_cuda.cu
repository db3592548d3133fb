/* SPDX-License-Identifier: BSD-3-Clause */
/*
  cuBLASLt reads row-major matrices as their transposes: C' = op(B)' op(A)'. So our columns are its
  rows. Its bias has one number per row, which is our bias per column. Bias and sums have the type
  of C, as cublasLt.h states for all types except int8 and fp8 (CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER). In a mask, each of our rows begins at a multiple of 128 bits.
*/
#include "gpu/device/device_cuda.h"
#include "gpu/gemm/gemm_choice_cuda.h"
#include "gpu/gemm/timing_cuda.h"

#include <stdio.h>
#include <string.h>

enum {
  TRS_GEMM_CHOICES = 256,
  TRS_GEMM_ALGORITHMS = TRS_TIMED_CALLS /* largest number of algorithms that are timed */
};

/*
  All numbers on which a choice depends, without any other data. Shapes are compared as bytes.
  Alignments are in bytes, at most 16 (a vector), and hold for the address and the stride.

  cuBLASLt's heuristic gets descriptions, layouts and preferences that are made from these numbers,
  always with the same amount of scratch memory. The heuristic uses only the alignment of the bias.
  Its answer for a shape does not depend on earlier calls. So it gives the same answer again after a
  choice was dropped. If it has no answer, our kernel is chosen. So the bits of a product are a
  function of its shape and alignment, on GPUs with one architecture and number of SMs, and for one
  version of the library: cuBLASLt picks no algorithm at random, and no other stream uses its
  workspace.

  -reproducible relies on this. All sample blocks (train/blockwise.h) have the same shapes on all
  ranks. The operands are parameters, gradients and activations, which have the same layout on all
  ranks, and samples. The samples of a block begin at a multiple of the block's rows in their own
  memory. So all sample blocks also have the same alignments.

  A choice by measured time would break this rule, so -reproducible refuses it.
*/
struct Shape {
  int64_t m, n, k, lda, ldb, ldc;
  int32_t operand, result; /* TrsDType of A and B; TrsDType of C and the bias */
  int32_t trans_a, trans_b, epilogue, add, alignment_a, alignment_b, alignment_c, alignment_bias;
  int64_t gpu;       /* a choice belongs to the handle of a GPU */
  int64_t mask_bits; /* distance between two rows of the mask, in bits */
};

struct TrsGemmChoice {
  Shape shape;
  bool none; /* true if cuBLASLt has no kernel for this shape */
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
  int n_met;   /* number of times that the shape occurred, counted up to 2 */
  bool listed; /* true: the algorithm is from the table of products, and is not timed */
  /* number of timed algorithms, or 0; index of the fastest algorithm, which is used */
  int n_timed, fastest;
  int tile, split, scheme; /* how the timed algorithm that is used computes */
  /* time of the heuristic's first algorithm, and of the algorithm that is used */
  float first_ms, own_ms;
};

static struct {
  cublasLtHandle_t *handle; /* [n_gpus] the handle of each GPU; NULL if it was not used */
  int n_gpus;
  int n_choices, last; /* number of choices; index of the choice used last */
  /*
    number of choices without a kernel; number of choices whose kernel does not make the product's
    mask or sums
  */
  int n_own, n_apart;
  int n_listed; /* number of choices from the table */
  TrsGemmChoice choice[TRS_GEMM_CHOICES];
  char text[TRS_GEMM_TEXT];
} state;

static PetscErrorCode forget(const TrsCublasLt *blas, TrsGemmChoice *choice)
{
  PetscFunctionBegin;
  CALL_BLAS(blas->MatmulDescDestroy(choice->description));
  CALL_BLAS(blas->MatrixLayoutDestroy(choice->a));
  CALL_BLAS(blas->MatrixLayoutDestroy(choice->b));
  CALL_BLAS(blas->MatrixLayoutDestroy(choice->c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGemmChoicesForget(const TrsCublasLt *blas)
{
  PetscFunctionBegin;
  for (int i = 0; i < state.n_choices; i++) PetscCall(forget(blas, &state.choice[i]));
  state.n_choices = state.n_own = state.n_apart = state.n_listed = state.last = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsGemmChoicesOwn()
{
  return state.n_own;
}

int TrsGemmChoicesApart()
{
  return state.n_apart;
}

int TrsGemmChoicesListed()
{
  return state.n_listed;
}

PetscErrorCode TrsGemmKey(const TrsCublasLt *blas, TrsDensePrecision precision, char key[TRS_PRODUCT_KEY])
{
  static const char *const words[] = {"fp32", "tf32", "bf16"};
  const size_t version = blas->GetVersion();
  struct cudaDeviceProp properties;
  int gpu;

  PetscFunctionBegin;
  TrsCallCUDA(cudaGetDevice(&gpu));
  TrsCallCUDA(cudaGetDeviceProperties(&properties, gpu));
  snprintf(key, TRS_PRODUCT_KEY, "%s, cuBLASLt %zu.%zu.%zu, %s", properties.name, version / 10000,
           version / 100 % 100, version % 100, words[precision]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A handle belongs to the GPU that is current at its creation. A process may use several GPUs. */
static PetscErrorCode make_handle(const TrsCublasLt *blas, int gpu)
{
  PetscFunctionBegin;
  if (gpu >= state.n_gpus) {
    PetscCall(PetscRealloc(static_cast<size_t>(gpu + 1) * sizeof(*state.handle), &state.handle));
    for (; state.n_gpus <= gpu; state.n_gpus++) state.handle[state.n_gpus] = NULL;
  }
  if (!state.handle[gpu]) CALL_BLAS(blas->Create(&state.handle[gpu]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  A kernel's epilogue: its work in addition to the product. Not every kernel can make masks or sums.
*/
enum { PLAIN, BIAS, BIAS_RELU, BIAS_RELU_MASK, MASKED, SUMS };
static const struct {
  cublasLtEpilogue_t epilogue;
  bool fused;
  const char *words;
} epilogues[] = {{CUBLASLT_EPILOGUE_DEFAULT, false, ""},
                 {CUBLASLT_EPILOGUE_BIAS, false, " bias"},
                 {CUBLASLT_EPILOGUE_RELU_BIAS, false, " bias relu"},
                 {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, true, " bias relu mask"},
                 {CUBLASLT_EPILOGUE_DRELU, true, " masked"},
                 {CUBLASLT_EPILOGUE_BGRADB, true, " sums"}};

static int epilogue_of(const TrsProduct *p)
{
  const bool relu = p->activation == TRS_ACTIVATION_RELU;

  if (p->sums) return SUMS;
  if (p->mask.data) return relu ? BIAS_RELU_MASK : MASKED;
  return !p->bias ? PLAIN : relu ? BIAS_RELU : BIAS;
}

enum { TRS_SHAPE_TEXT = 96 };

static void shape_text(const Shape *shape, char text[TRS_SHAPE_TEXT])
{
  snprintf(text, TRS_SHAPE_TEXT, "%lld x %lld x %lld %c%c %s to %s%s%s", static_cast<long long>(shape->m),
           static_cast<long long>(shape->n), static_cast<long long>(shape->k), shape->trans_a ? 'T' : 'N',
           shape->trans_b ? 'T' : 'N', TrsDTypeName(static_cast<TrsDType>(shape->operand)),
           TrsDTypeName(static_cast<TrsDType>(shape->result)), epilogues[shape->epilogue].words,
           shape->add ? " added" : "");
}

/* Read the library's number for the tile, the parts of k, and the scheme that adds them. */
static void read_algorithm(const TrsCublasLt *blas, const cublasLtMatmulAlgo_t *algorithm, int *tile,
                           int *split, int *scheme)
{
  const struct {
    cublasLtMatmulAlgoConfigAttributes_t attribute;
    int *to;
  } wanted[] = {{CUBLASLT_ALGO_CONFIG_TILE_ID, tile},
                {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, split},
                {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme}};

  for (const auto &w : wanted) {
    uint32_t value = 0;
    size_t written = 0;

    (void)blas->MatmulAlgoConfigGetAttribute(algorithm, w.attribute, &value, sizeof(value), &written);
    *w.to = static_cast<int>(value);
  }
}

const char *TrsGemmChoicesText()
{
  size_t used = 0;

  state.text[0] = '\0';
  for (int i = 0; i < state.n_choices; i++) {
    const TrsGemmChoice *c = &state.choice[i];
    char line[256], shape[TRS_SHAPE_TEXT];
    int size;

    if (c->n_timed == 0) continue;
    shape_text(&c->shape, shape);
    size = snprintf(
        line, sizeof(line),
        "%s: algorithm %d of %d, %.4g us, the first one %.4g us, tile %d, %d parts, reduction scheme %d\n",
        shape, c->fastest + 1, c->n_timed, 1e3 * static_cast<double>(c->own_ms),
        1e3 * static_cast<double>(c->first_ms), c->tile, c->split, c->scheme);
    if (size < 0 || used + static_cast<size_t>(size) >= sizeof(state.text)) break;
    memcpy(state.text + used, line, static_cast<size_t>(size) + 1);
    used += static_cast<size_t>(size);
  }
  return state.text;
}

/* The largest power of two, up to 16, that divides both the address and the stride in bytes. */
static int32_t alignment_of(const void *address, int64_t stride, TrsDType type)
{
  const uintptr_t bits = reinterpret_cast<uintptr_t>(address) |
                         static_cast<uintptr_t>(TrsDTypeBytes(type) * stride);

  return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 2;
}

static int32_t alignment_of(const TrsMatrix *x)
{
  return alignment_of(x->data, x->stride, x->type);
}

/*
  NVIDIA's own interface refuses DRELU with k = 1, and its tests omit BGRADB with one row of D
  (nvmath-python, epilog_protocol.py and test_epilog.py).
*/
bool TrsGemmCanFuse(const TrsProduct *p)
{
  if (p->sums) return p->k > 0 && p->n > 1 && !p->mask.data;
  return p->k > 1 && p->mask.data && p->mask.row_bytes % 16 == 0 &&
         reinterpret_cast<uintptr_t>(p->mask.data) % 16 == 0;
}

static Shape shape_of(const TrsProduct *p, int gpu)
{
  Shape shape;

  memset(&shape, 0, sizeof(shape));
  shape.gpu = gpu;
  shape.m = p->m;
  shape.n = p->n;
  shape.k = p->k;
  shape.lda = p->a.stride;
  shape.ldb = p->b.stride;
  shape.ldc = p->c.stride;
  shape.operand = p->a.type;
  shape.result = p->c.type;
  shape.trans_a = p->trans_a;
  shape.trans_b = p->trans_b;
  shape.epilogue = epilogue_of(p);
  shape.add = p->beta != 0.0f;
  shape.alignment_a = alignment_of(&p->a);
  shape.alignment_b = alignment_of(&p->b);
  shape.alignment_c = PetscMin(alignment_of(&p->c), alignment_of(TrsProductAdded(p), p->c.stride, p->c.type));
  shape.alignment_bias = alignment_of(p->sums ? p->sums : p->bias, 0, p->c.type);
  shape.mask_bits = p->mask.data ? 8 * p->mask.row_bytes : 0;
  return shape;
}

/* Bytes of all operands and results, each counted once. flops_of(): sums and products. */
static double bytes_of(const Shape *s)
{
  const double m = static_cast<double>(s->m), n = static_cast<double>(s->n), k = static_cast<double>(s->k),
               in = static_cast<double>(TrsDTypeBytes(static_cast<TrsDType>(s->operand))),
               out = static_cast<double>(TrsDTypeBytes(static_cast<TrsDType>(s->result)));

  return in * (m * k + k * n) + out * m * n * (s->add ? 2 : 1) + m * static_cast<double>(s->mask_bits) / 8;
}

static double flops_of(const Shape *s)
{
  return 2.0 * static_cast<double>(s->m) * static_cast<double>(s->n) * static_cast<double>(s->k);
}

static cublasComputeType_t compute_type(TrsDensePrecision precision)
{
  return precision == TRS_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static PetscErrorCode layout(const TrsCublasLt *blas, int32_t type, int64_t rows, int64_t cols, int64_t ld,
                             cublasLtMatrixLayout_t *made)
{
  PetscFunctionBegin;
  CALL_BLAS(blas->MatrixLayoutCreate(made, type == TRS_BF16 ? CUDA_R_16BF : CUDA_R_32F,
                                     static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode describe(const TrsCublasLt *blas, TrsDensePrecision precision, const Shape *shape,
                               TrsGemmChoice *choice)
{
  const cublasOperation_t op_a = shape->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          op_b = shape->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasLtEpilogue_t epilogue = epilogues[shape->epilogue].epilogue;

  PetscFunctionBegin;
  memset(choice, 0, sizeof(*choice));
  choice->shape = *shape;
  CALL_BLAS(blas->MatmulDescCreate(&choice->description, compute_type(precision), CUDA_R_32F));
  CALL_BLAS(
      blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof(op_a)));
  CALL_BLAS(
      blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof(op_b)));
  CALL_BLAS(blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof(epilogue)));
  if (shape->mask_bits)
    CALL_BLAS(blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                           &shape->mask_bits, sizeof(shape->mask_bits)));
  PetscCall(layout(blas, shape->operand, shape->trans_b ? shape->k : shape->n,
                   shape->trans_b ? shape->n : shape->k, shape->ldb, &choice->a));
  PetscCall(layout(blas, shape->operand, shape->trans_a ? shape->m : shape->k,
                   shape->trans_a ? shape->k : shape->m, shape->lda, &choice->b));
  PetscCall(layout(blas, shape->result, shape->n, shape->m, shape->ldc, &choice->c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Get up to `wanted` algorithms from cuBLASLt's heuristic, best first. *n is 0 if there is none. The
  pointers are set because the heuristic also reads their alignment. If the product has a mask or
  sums, cuBLASLt may report that it does not support them.
*/
static PetscErrorCode ask(const TrsCublasLt *blas, const TrsGemmChoice *choice, int wanted,
                          cublasLtMatmulAlgo_t *algorithm, int *n)
{
  const Shape *shape = &choice->shape;
  const uint64_t workspace = static_cast<uint64_t>(TRS_GEMM_WORKSPACE_BYTES);
  /* parts of a split product are added in fp32, not in the type of a bf16 result */
  const uint32_t reduction = shape->result == TRS_BF16 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                       : CUBLASLT_REDUCTION_SCHEME_MASK;
  const struct { /* cuBLASLt's A is our B */
    cublasLtMatmulPreferenceAttributes_t attribute;
    uint32_t bytes;
  } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(shape->alignment_b)},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(shape->alignment_a)},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(shape->alignment_c)},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(shape->alignment_c)}};
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t result[TRS_GEMM_ALGORITHMS];
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  int n_found = 0;

  PetscFunctionBegin;
  *n = 0;
  CALL_BLAS(blas->MatmulPreferenceCreate(&preference));
  CALL_BLAS(blas->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace, sizeof(workspace)));
  CALL_BLAS(blas->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                               &reduction, sizeof(reduction)));
  for (const auto &a : aligned)
    CALL_BLAS(blas->MatmulPreferenceSetAttribute(preference, a.attribute, &a.bytes, sizeof(a.bytes)));
  status = blas->MatmulAlgoGetHeuristic(state.handle[shape->gpu], choice->description, choice->a, choice->b,
                                        choice->c, choice->c, preference,
                                        PetscMin(wanted, TRS_GEMM_ALGORITHMS), result, &n_found);
  CALL_BLAS(blas->MatmulPreferenceDestroy(preference));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) PetscFunctionReturn(PETSC_SUCCESS);
  if (status == CUBLAS_STATUS_INVALID_VALUE && epilogues[shape->epilogue].fused)
    PetscFunctionReturn(PETSC_SUCCESS);
  CALL_BLAS(status);
  for (int i = 0; i < n_found; i++) {
    if (result[i].state == CUBLAS_STATUS_NOT_SUPPORTED) continue;
    CALL_BLAS(result[i].state);
    algorithm[(*n)++] = result[i].algo;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Pass the addresses of the mask, the bias or the sums, which the epilogue reads or writes in
  addition to C.
*/
static PetscErrorCode set_pointers(const TrsCublasLt *blas, const TrsGemmChoice *choice, const TrsProduct *p)
{
  const void *const bias = p->sums ? p->sums : p->bias;

  PetscFunctionBegin;
  if (bias)
    CALL_BLAS(blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                           sizeof(bias)));
  if (p->mask.data)
    CALL_BLAS(blas->MatmulDescSetAttribute(choice->description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                           &p->mask.data, sizeof(p->mask.data)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute the product with the given algorithm and write it to c. */
static PetscErrorCode multiply(const TrsCublasLt *blas, TrsStream stream, const TrsGemmChoice *choice,
                               const cublasLtMatmulAlgo_t *algorithm, const TrsProduct *p, void *c,
                               cublasStatus_t *status)
{
  void *workspace = NULL;

  PetscFunctionBegin;
  PetscCall(set_pointers(blas, choice, p));
  PetscCall(TrsCudaStreamScratch(stream, TRS_GEMM_WORKSPACE_BYTES, &workspace));
  *status = blas->Matmul(state.handle[choice->shape.gpu], choice->description, &p->alpha, p->b.data,
                         choice->a, p->a.data, choice->b, &p->beta, TrsProductAdded(p), choice->c, c,
                         choice->c, algorithm, workspace, static_cast<size_t>(TRS_GEMM_WORKSPACE_BYTES),
                         TrsCudaStream(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A product whose algorithms are timed. */
struct TimedProduct {
  const TrsCublasLt *blas;
  const TrsGemmChoice *choice;
  const TrsProduct *product;
  const cublasLtMatmulAlgo_t *algorithm;
  void *result; /* separate memory, so that the matrix that the real product adds stays unchanged */
};

static PetscErrorCode multiply_timed(TrsStream stream, const void *context, int i, bool *failed)
{
  const TimedProduct *t = static_cast<const TimedProduct *>(context);
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

  PetscFunctionBegin;
  PetscCall(multiply(t->blas, stream, t->choice, &t->algorithm[i], t->product, t->result, &status));
  *failed = status != CUBLAS_STATUS_SUCCESS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Time n algorithms on the product's own operands. ms [n] is as for TrsTimeCalls(). */
static PetscErrorCode time_algorithms(const TrsCublasLt *blas, TrsStream stream, const TrsGemmChoice *choice,
                                      const TrsProduct *p, int n, const cublasLtMatmulAlgo_t *algorithm,
                                      float *ms)
{
  TimedProduct timed = {blas, choice, p, algorithm, NULL};

  PetscFunctionBegin;
  PetscCall(TrsCudaAllocUnset(p->m * p->c.stride * TrsDTypeBytes(p->c.type), &timed.result));
  PetscCall(TrsTimeCalls(stream, n, multiply_timed, &timed, ms));
  PetscCall(trs_device_cuda.release(&timed.result));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the fastest algorithm. An algorithm replaces the heuristic's first one only if it takes at
  most 0.97 of its time, so that noise in the measured times does not change a run's bits.
*/
static PetscErrorCode choose_by_time(const TrsCublasLt *blas, TrsStream stream, int most, const TrsProduct *p,
                                     TrsGemmChoice *choice)
{
  cublasLtMatmulAlgo_t algorithm[TRS_GEMM_ALGORITHMS];
  float ms[TRS_GEMM_ALGORITHMS];
  int n;

  PetscFunctionBegin;
  PetscCall(ask(blas, choice, most, algorithm, &n));
  if (n < 2) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(time_algorithms(blas, stream, choice, p, n, algorithm, ms));
  for (int i = 1; i < n; i++)
    if (ms[i] >= 0.0f && ms[i] < 0.97f * ms[0] && ms[i] < (choice->fastest ? ms[choice->fastest] : ms[0]))
      choice->fastest = i;
  choice->algorithm = algorithm[choice->fastest];
  read_algorithm(blas, &choice->algorithm, &choice->tile, &choice->split, &choice->scheme);
  choice->n_timed = n;
  choice->first_ms = ms[0];
  choice->own_ms = ms[choice->fastest];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if a weight's gradient with sums would use less than half of the GPU. Few thread blocks then
  walk along all samples, because cuBLASLt has no documented product with sums that is split along
  k. Without sums it has, and our kernel's pass over the gradient costs less than it saves.
*/
static PetscErrorCode is_narrow(const Shape *shape, bool *narrow)
{
  enum { SIDE = 128 /* of a block's tile */, LEAST_K = 2048 /* about 10 us on an H200 for a tile */ };
  const int64_t tiles = ((shape->m + SIDE - 1) / SIDE) * ((shape->n + SIDE - 1) / SIDE);
  int device, multiprocessors;

  PetscFunctionBegin;
  TrsCallCUDA(cudaGetDevice(&device));
  TrsCallCUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  *narrow = epilogues[shape->epilogue].epilogue == CUBLASLT_EPILOGUE_BGRADB && shape->k >= LEAST_K &&
            2 * tiles <= multiprocessors;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Use the table's algorithm for the shape, if there is one and the heuristic still offers it. The
  heuristic's list for a shape has the same order in every run (see Shape).
*/
static PetscErrorCode choose_listed(const TrsCublasLt *blas, const TrsGemmRules *rules, TrsGemmChoice *choice)
{
  cublasLtMatmulAlgo_t algorithm[TRS_GEMM_ALGORITHMS];
  char key[TRS_PRODUCT_KEY], shape[TRS_SHAPE_TEXT];
  const TrsProductEntry *entry;
  int n, tile, split, scheme;

  PetscFunctionBegin;
  if (rules->table.n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsGemmKey(blas, rules->precision, key));
  shape_text(&choice->shape, shape);
  entry = TrsProductTableFind(&rules->table, key, shape);
  if (!entry) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ask(blas, choice, TRS_GEMM_ALGORITHMS, algorithm, &n));
  if (entry->algorithm > n) PetscFunctionReturn(PETSC_SUCCESS);
  read_algorithm(blas, &algorithm[entry->algorithm - 1], &tile, &split, &scheme);
  if (tile != entry->tile || split != entry->split || scheme != entry->scheme)
    PetscFunctionReturn(PETSC_SUCCESS);
  choice->listed = true;
  choice->fastest = entry->algorithm - 1;
  choice->algorithm = algorithm[choice->fastest];
  state.n_listed++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Use the table's algorithm or the heuristic's first one. If there is no algorithm, our own kernel
  computes the product. If only the mask or the sums are not supported, or if sums would leave the
  GPU idle, kernels of ours make them separately.
*/
static PetscErrorCode choose_first(const TrsCublasLt *blas, const TrsGemmRules *rules, TrsGemmChoice *choice)
{
  bool narrow;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(is_narrow(&choice->shape, &narrow));
  if (!narrow) PetscCall(choose_listed(blas, rules, choice));
  if (choice->listed) PetscFunctionReturn(PETSC_SUCCESS);
  if (!narrow) PetscCall(ask(blas, choice, 1, &choice->algorithm, &n));
  choice->none = n == 0;
  if (choice->none && epilogues[choice->shape.epilogue].fused)
    state.n_apart++;
  else if (choice->none && state.n_own++ == 0)
    fprintf(stderr,
            "trshard: info: cuBLASLt has no kernel for a product of %lld x %lld x %lld here: the program's "
            "own makes it, and others like it\n",
            static_cast<long long>(choice->shape.m), static_cast<long long>(choice->shape.n),
            static_cast<long long>(choice->shape.k));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Steps repeat their products. So the needed choice is usually the next one after the choice used
  last. A new shape gets a new choice. Its algorithms are timed when the shape occurs for the second
  time: products of sequences have different shapes in every step, and most of these shapes occur
  only once.
*/
PetscErrorCode TrsGemmChoiceFind(const TrsCublasLt *blas, const TrsGemmRules *rules, TrsStream stream,
                                 const TrsProduct *p, const TrsGemmChoice **found)
{
  TrsGemmChoice *choice = NULL;
  PetscBool untimed = PETSC_FALSE;
  Shape shape;
  int gpu;

  PetscFunctionBegin;
  TrsCallCUDA(cudaGetDevice(&gpu));
  shape = shape_of(p, gpu);
  for (int i = 1; i <= state.n_choices && !choice; i++) {
    const int at = (state.last + i) % state.n_choices;

    if (memcmp(&state.choice[at].shape, &shape, sizeof(shape)) == 0) choice = &state.choice[state.last = at];
  }
  if (!choice) {
    PetscCall(make_handle(blas, gpu));
    if (state.n_choices == TRS_GEMM_CHOICES) PetscCall(TrsGemmChoicesForget(blas));
    choice = &state.choice[state.n_choices];
    PetscCall(describe(blas, rules->precision, &shape, choice));
    PetscCall(set_pointers(blas, choice, p));
    PetscCall(choose_first(blas, rules, choice));
    state.last = state.n_choices++;
  }
  /* algorithms cannot be timed during a capture */
  if (choice->n_met < 2) PetscCall(TrsCudaIsCapturing(stream, &untimed));
  if (choice->n_met < 2 && !untimed && ++choice->n_met == 2 && rules->most_algorithms > 1 && !choice->none &&
      !choice->listed) {
    PetscCall(set_pointers(blas, choice, p));
    PetscCall(choose_by_time(blas, stream, rules->most_algorithms, p, choice));
  }
  *found = choice->none ? NULL : choice;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGemmChoiceMultiply(const TrsCublasLt *blas, TrsStream stream, const TrsGemmChoice *choice,
                                     const TrsProduct *p)
{
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  char name[TRS_SHAPE_TEXT] = "";

  PetscFunctionBegin;
  if (PetscUnlikely(trs_kernels_are_timed)) shape_text(&choice->shape, name);
  PetscCall(TrsKernelBegin(name, bytes_of(&choice->shape), flops_of(&choice->shape), stream));
  PetscCall(multiply(blas, stream, choice, &choice->algorithm, p, p->c.data, &status));
  PetscCall(TrsKernelEnd(stream));
  CALL_BLAS(status);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- times of all products --- */

/*
  Allocate memory of this alignment and no larger one, filled with numbers in [1, 2): with equal
  numbers, products need less power and are faster.
*/
static PetscErrorCode make_operand(int64_t bytes, int32_t type, int32_t alignment, void **base, void **data)
{
  enum { PATTERN = 1 << 18 };
  static uint32_t pattern[PATTERN];
  uint32_t bits = 1;

  PetscFunctionBegin;
  for (uint32_t &word : pattern) {
    bits = bits * 1664525u + 1013904223u;
    word = type == TRS_BF16 ? (bits & 0x007F007Fu) | 0x3F803F80u : (bits >> 9) | 0x3F800000u;
  }
  PetscCall(TrsCudaAllocUnset(bytes + 16, base));
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(sizeof(pattern)))
    TrsCallCUDA(
        cudaMemcpy(static_cast<char *>(*base) + at, pattern,
                   static_cast<size_t>(PetscMin(static_cast<int64_t>(sizeof(pattern)), bytes + 16 - at)),
                   cudaMemcpyHostToDevice));
  *data = static_cast<char *>(*base) + alignment % 16;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A product of the shape, with operands of its own; base has the memory to release. */
enum { OPERAND_A, OPERAND_B, OPERAND_C, OPERAND_BIAS, OPERAND_MASK, N_OPERANDS };

static PetscErrorCode make_product(const Shape *s, TrsProduct *p, void *base[N_OPERANDS])
{
  const int64_t rows_a = s->trans_a ? s->k : s->m, rows_b = s->trans_b ? s->n : s->k;
  const TrsDType operand = static_cast<TrsDType>(s->operand), result = static_cast<TrsDType>(s->result);
  void *bias = NULL;

  PetscFunctionBegin;
  *p = {{static_cast<PetscBool>(s->trans_a),
         static_cast<PetscBool>(s->trans_b),
         s->m,
         s->n,
         s->k,
         1.0f,
         {operand, s->lda, NULL},
         {operand, s->ldb, NULL},
         s->add ? 1.0f : 0.0f,
         {result, s->ldc, NULL}},
        NULL,
        TRS_ACTIVATION_NONE,
        NULL};
  PetscCall(make_operand(rows_a * s->lda * TrsDTypeBytes(operand), operand, s->alignment_a, &base[OPERAND_A],
                         &p->a.data));
  PetscCall(make_operand(rows_b * s->ldb * TrsDTypeBytes(operand), operand, s->alignment_b, &base[OPERAND_B],
                         &p->b.data));
  PetscCall(make_operand(s->m * s->ldc * TrsDTypeBytes(result), result, s->alignment_c, &base[OPERAND_C],
                         &p->c.data));
  if (s->epilogue == SUMS || s->epilogue == BIAS || s->epilogue == BIAS_RELU || s->epilogue == BIAS_RELU_MASK)
    PetscCall(make_operand(PetscMax(s->m, s->n) * 4, result, s->alignment_bias, &base[OPERAND_BIAS], &bias));
  if (s->mask_bits) {
    PetscCall(make_operand(s->m * s->mask_bits / 8, TRS_FP32, 16, &base[OPERAND_MASK], &p->mask.data));
    p->mask.row_bytes = s->mask_bits / 8;
  }
  if (s->epilogue == SUMS)
    p->sums = bias;
  else
    p->bias = bias;
  if (s->epilogue == BIAS_RELU || s->epilogue == BIAS_RELU_MASK) p->activation = TRS_ACTIVATION_RELU;
  PetscFunctionReturn(PETSC_SUCCESS);
}

typedef struct {
  const TrsCublasLt *blas;
  TrsStream stream;
  const char *key;
  PetscErrorCode (*tell)(void *context, const TrsProductTime *time);
  void *context;
} Listener;

/* Time the algorithms for a product. `of` is the choice that the run used. */
static PetscErrorCode time_product(const Listener *l, const TrsGemmChoice *of, const TrsGemmChoice *choice,
                                   const TrsProduct *p, const char *way)
{
  cublasLtMatmulAlgo_t algorithm[TRS_GEMM_ALGORITHMS];
  float ms[TRS_GEMM_ALGORITHMS];
  char shape[TRS_SHAPE_TEXT];
  TrsProductTime time;
  int n;

  PetscFunctionBegin;
  shape_text(&of->shape, shape);
  PetscCall(set_pointers(l->blas, choice, p));
  PetscCall(ask(l->blas, choice, TRS_GEMM_ALGORITHMS, algorithm, &n));
  if (n > 0) PetscCall(time_algorithms(l->blas, l->stream, choice, p, n, algorithm, ms));
  for (int i = 0; i < n; i++) {
    if (ms[i] < 0.0f) continue;
    memset(&time, 0, sizeof(time));
    time.key = l->key;
    time.shape = shape;
    time.way = way;
    time.algorithm = i + 1;
    time.n = n;
    time.used = static_cast<PetscBool>(of == choice && i == of->fastest);
    time.seconds = 1e-3 * static_cast<double>(ms[i]);
    time.bytes = bytes_of(&choice->shape);
    time.flops = flops_of(&choice->shape);
    read_algorithm(l->blas, &algorithm[i], &time.tile, &time.split, &time.scheme);
    PetscCall(l->tell(l->context, &time));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Time the product without its epilogue. */
static PetscErrorCode time_plain(const Listener *l, const TrsGemmChoice *of, const TrsProduct *p,
                                 TrsDensePrecision precision)
{
  TrsGemmChoice plain;
  TrsProduct bare = *p;

  PetscFunctionBegin;
  bare.bias = NULL;
  bare.sums = bare.mask.data = NULL;
  bare.activation = TRS_ACTIVATION_NONE;
  const Shape shape = shape_of(&bare, static_cast<int>(of->shape.gpu));
  PetscCall(describe(l->blas, precision, &shape, &plain));
  PetscCall(time_product(l, of, &plain, &bare, "plain"));
  PetscCall(forget(l->blas, &plain));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode time_own_sum(const Listener *l, const TrsGemmChoice *of, const TrsProduct *p);

/*
  Time a plain product of a weight's gradient with the sums that the run made apart, and the kernel
  that makes them.
*/
static PetscErrorCode time_with_sums(const Listener *l, const TrsGemmChoice *of, const TrsProduct *p,
                                     TrsDensePrecision precision, void *sums)
{
  TrsGemmChoice with;
  TrsProduct fused = *p;

  PetscFunctionBegin;
  fused.sums = sums;
  const Shape shape = shape_of(&fused, static_cast<int>(of->shape.gpu));
  PetscCall(describe(l->blas, precision, &shape, &with));
  if (fused.n > 1) PetscCall(time_product(l, of, &with, &fused, "sums"));
  PetscCall(forget(l->blas, &with));
  PetscCall(time_own_sum(l, of, &fused));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode sum_timed(TrsStream stream, const void *context, int, bool *)
{
  const TrsProduct *p = static_cast<const TrsProduct *>(context);

  PetscFunctionBegin;
  PetscCall(TrsColumnSumsCuda(stream, p->k, p->m, &p->a, static_cast<float *>(p->sums)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Time the kernel that sums the rows of op(A) beside a plain product. */
static PetscErrorCode time_own_sum(const Listener *l, const TrsGemmChoice *of, const TrsProduct *p)
{
  char shape[TRS_SHAPE_TEXT];
  TrsProductTime time;
  float ms;

  PetscFunctionBegin;
  shape_text(&of->shape, shape);
  PetscCall(TrsTimeCalls(l->stream, 1, sum_timed, p, &ms));
  memset(&time, 0, sizeof(time));
  time.key = l->key;
  time.shape = shape;
  time.way = "own sum";
  time.seconds = 1e-3 * static_cast<double>(ms);
  time.bytes = static_cast<double>(p->m) * static_cast<double>(p->k) *
               static_cast<double>(TrsDTypeBytes(p->a.type));
  PetscCall(l->tell(l->context, &time));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGemmChoicesTime(const TrsCublasLt *blas, const TrsGemmRules *rules, TrsStream stream,
                                  PetscErrorCode (*tell)(void *context, const TrsProductTime *time),
                                  void *context)
{
  char key[TRS_PRODUCT_KEY];
  const Listener listener = {blas, stream, key, tell, context};

  PetscFunctionBegin;
  PetscCall(TrsGemmKey(blas, rules->precision, key));
  for (int i = 0; i < state.n_choices; i++) {
    TrsGemmChoice *const choice = &state.choice[i];
    void *base[N_OPERANDS] = {};
    TrsProduct p;

    if (choice->none) continue;
    PetscCall(make_product(&choice->shape, &p, base));
    PetscCall(time_product(&listener, choice, choice, &p, "as used"));
    if (choice->shape.epilogue != PLAIN) PetscCall(time_plain(&listener, choice, &p, rules->precision));
    if (p.sums && p.trans_a) PetscCall(time_own_sum(&listener, choice, &p));
    if (choice->shape.epilogue == PLAIN && p.trans_a && !p.trans_b && p.c.type == TRS_FP32) {
      void *sums;

      PetscCall(make_operand(p.m * 4, TRS_FP32, 16, &base[OPERAND_BIAS], &sums));
      PetscCall(time_with_sums(&listener, choice, &p, rules->precision, sums));
    }
    for (void *&memory : base) PetscCall(trs_device_cuda.release(&memory));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
