/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/gemm.h"

#include "core/names.h"
#include "core/start.h"
#include "cpu/blas_library.h"
#include "cpu/cpu_kernels.h"
#include "cpu/isa/codec_kernels.h"
#include "cpu/onednn_library.h"

#include <cblas.h>
#if defined(__x86_64__)
  #include <cpuid.h>
#endif
#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
  Matrix products. If the machine has oneDNN and our kernels use AVX-512, oneDNN computes them;
  otherwise OpenBLAS does. TRSHARD_GEMM=openblas in the environment selects OpenBLAS. The table has
  times for layers of a DLRM, batch 2048, forward and both gradients, on one thread of a Xeon
  (Emerald Rapids), with oneDNN 2.6.3 and OpenBLAS 0.3.21 SkylakeX measured in turn
  (regression/bench/bench_dense):

    layer          oneDNN    OpenBLAS
    415 x 64       2.1       2.8 ms
    64 x 64        0.32      0.43 ms
    256 x 1        0.15      0.28 ms
    415 x 1024     36.8      39.6 ms
    1024 x 1024    82.9      90.8 ms

  BLIS 0.9 uses kernels for Haswell on this processor, and has half the speed. Opening oneDNN takes
  2 ms. Its first product takes 33 ms longer, because oneDNN generates code.

  OpenBLAS chooses its kernels ("core") once, when it is loaded, and PETSc loads it before main().
  It recognises all processors we know, but OPENBLAS_CORETYPE overrides its choice. Some sites set
  this variable for all programs; Haswell, for equal numbers on all machines, halves the speed on
  AVX-512. So the choice is made again here, by the instruction set of our other kernels, and
  TRSHARD_ISA limits both.

  Our own threads share a product: it is divided into parts by rows or columns of C, and the library
  computes each part on one thread. The bits do not depend on the division, for these reasons:
  - In OpenBLAS the blocks of the sum over k depend only on k. But its Haswell kernels add in
    another order at the edge of a block of 12 rows, and at the last columns of a part of any width
    (tried). So the rows of a part are a multiple of a unit, and C is divided by columns only on
    AVX-512. Products with m * n * k <= 1e6 use different kernels. Parts are always larger: they
    have more than a quarter of BLAS_PART_FLOPS.
  - oneDNN has kernels for small matrices that divide the sum in other ways, and chooses one by m
    and n. All of them add up to 768 terms in sequence. So k is divided into slices with fewer
    terms, which takes no measurable time. A few rows or columns are another special case (5 rows of
    1000 terms), so every part has at least one unit.
  This was tested with 3000 random shapes, divided into up to 43 parts: oneDNN with fp32, and with
  bf16 on AMX and on AVX512_BF16; OpenBLAS with AVX-512 and Haswell kernels.

  With bf16, operands are rounded and then multiplied with fp32 instructions, unless oneDNN has
  faster bf16 instructions here: AMX tiles, or AVX512_BF16 on AMD processors. These instructions
  treat numbers below 2^-126 as zero. On Intel processors without AMX, AVX512_BF16 reaches 80
  GFLOP/s and fp32 150 GFLOP/s; TRSHARD_GEMM=bf16 selects AVX512_BF16 anyway, for tests.
*/

/*
  A product is divided only so far that its parts have at least this number of operations on
  average. With oneDNN a part with this number takes about 20 us.
*/
#define ONEDNN_PART_FLOPS 3e6
#define BLAS_PART_FLOPS   8e6
#define ONEDNN_PART_UNIT  16  /* smallest number of rows or columns of a part */
#define BLAS_PART_UNIT    48  /* a multiple of 12 and 16 */
#define SLICE             384 /* number of terms of a sum that oneDNN adds in one call */
/* oneDNN allocates at most 2.06 MB in products with the sizes above (tried). */
#define ROOM_BYTES 2359296

static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static const TrsOneDnn *onednn; /* NULL if BLAS is used */
static char blas_text[96], library_text[192];
static PetscBool cut_columns; /* true if a product may be divided by columns */
/* true if oneDNN's bf16 products are faster than its fp32 products */
static PetscBool fast_bf16;
static TrsDensePrecision precision; /* the value of -dense_precision, for the whole process */
/* a product's operands, rounded to bf16; for the main thread only */
static TrsBuffer rounded[2];

/*
  A heap block that a thread holds between its products. It is freed before a product, which then
  allocates from its memory. Without this block, a small allocation between two products gets a
  piece of the memory that the last product freed. The next product then gets new memory, and the
  heap grew by up to 16 MiB.
*/
static pthread_key_t room; /* the thread's block, which is freed when the thread ends */
static PetscBool has_room; /* false if the process has no key left */

/* True if the processor multiplies bf16 faster than fp32. AMX is in bits 22 and 24 of EDX. */
static PetscBool has_fast_bf16(void)
{
  const char *choice = getenv("TRSHARD_GEMM");
#if defined(__x86_64__)
  unsigned eax, ebx, ecx, edx = 0;

  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) edx = 0;
  if ((edx >> 22 & 1) && (edx >> 24 & 1)) return PETSC_TRUE;
  if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16")) return PETSC_TRUE;
#endif
  return (PetscBool)(choice && !strcmp(choice, "bf16"));
}

/*
  Signals that are blocked while a thread multiplies. oneDNN 2.6 keeps data so far below the stack
  pointer that a signal handler overwrites it: about one in a thousand signals damaged the heap. So
  signals are blocked, unless all handlers run on a stack of their own. Signals for the thread's own
  faults are never blocked.
*/
static sigset_t kept_off;
/* true if a handler without its own stack exists, for example a profiler's handler */
static PetscBool others_handle;

static void look_at_handlers(void)
{
  const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};

  sigfillset(&kept_off);
  for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) sigdelset(&kept_off, faults[i]);
  for (int number = 1; number <= SIGRTMAX; number++) {
    struct sigaction action;

    if (sigismember(&kept_off, number) != 1 || sigaction(number, NULL, &action) != 0) continue;
    if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN && !(action.sa_flags & SA_ONSTACK))
      others_handle = PETSC_TRUE;
  }
}

static void library_setup(void)
{
  const char *isa = TrsComputeIsa();

  look_at_handlers();
  has_room = (PetscBool)(pthread_key_create(&room, free) == 0);
  if (!strcmp(isa, "avx512")) onednn = TrsOneDnnOpen();
  fast_bf16 = (PetscBool)(onednn && onednn->gemm_bf16 && has_fast_bf16());
  cut_columns = (PetscBool)(TrsBlasSetup(isa, blas_text, sizeof(blas_text)) || onednn);
}

/*
  Prepare the library before the first product. If oneDNN is used, OpenBLAS starts no threads and
  maps no memory.
*/
static PetscErrorCode prepare_library(void)
{
  static PetscBool is_prepared; /* set by the thread of the first product */

  PetscFunctionBegin;
  if (is_prepared) PetscFunctionReturn(PETSC_SUCCESS);
  pthread_once(&library_once, library_setup);
  if (!onednn) PetscCall(TrsBlasPrepare(omp_get_max_threads()));
  is_prepared = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsProductLibraryCpu(void)
{
  const int n_threads = omp_get_max_threads();

  pthread_once(&library_once, library_setup);
  snprintf(library_text, sizeof(library_text), "%s%s, %d thread%s", onednn ? onednn->name : blas_text,
           precision == TRS_PRECISION_FP32 ? ""
           : fast_bf16                     ? " bf16"
                                           : " fp32 of operands rounded to bf16",
           n_threads, TrsPlural(n_threads, "s"));
  return library_text;
}

PetscErrorCode TrsDensePrecisionCpu(TrsDensePrecision wanted)
{
  PetscFunctionBegin;
  PetscCheck(wanted != TRS_PRECISION_TF32, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-dense_precision: a CPU's products are fp32 or bf16; tf32 needs -device cuda");
  /* write only if it changes, because threads that multiply may be reading it */
  if (precision != wanted) precision = wanted;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductAlgorithmsCpu(int most)
{
  PetscFunctionBegin;
  (void)most; /* BLAS and oneDNN choose algorithms themselves */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProductTableCpu(TrsProductTable *table, const char **missing)
{
  PetscFunctionBegin;
  *missing = NULL;
  PetscCall(TrsProductTableFree(table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsProductChoicesCpu(void)
{
  return "";
}

PetscErrorCode TrsProductTimesCpu(TrsStream stream,
                                  PetscErrorCode (*tell)(void *context, const TrsProductTime *time),
                                  void *context)
{
  PetscFunctionBegin;
  (void)stream;
  (void)tell;
  (void)context;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute rows [row, row + rows) and columns [col, col + cols) of C on this thread. Returns the
  status of oneDNN.
*/
static int part_of_product(const TrsMatrixProduct *p, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
  const int64_t n_slices = (p->k + SLICE - 1) / SLICE;
  const int64_t lda = p->a.stride, ldb = p->b.stride, ldc = p->c.stride;
  const int64_t a_part = p->trans_a ? row : row * lda, a_step = p->trans_a ? lda : 1;
  const int64_t b_part = p->trans_b ? col * ldb : col, b_step = p->trans_b ? 1 : ldb;
  const char ta = p->trans_a ? 'T' : 'N', tb = p->trans_b ? 'T' : 'N';
  const PetscBool open_to_signals = (PetscBool)(others_handle || !trs_signals_have_stack);
  float *c = (float *)p->c.data + row * ldc + col;
  sigset_t before;
  int status = 0;

  if (!onednn || p->k == 0) {
    cblas_sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans, p->trans_b ? CblasTrans : CblasNoTrans,
                (int)rows, (int)cols, (int)p->k, p->alpha, (const float *)p->a.data + a_part, (int)lda,
                (const float *)p->b.data + b_part, (int)ldb, p->beta, c, (int)ldc);
    return 0;
  }
  /* oneDNN is called on this thread of the parallel region, and must not start threads */
  omp_set_num_threads(1);
  if (open_to_signals) pthread_sigmask(SIG_BLOCK, &kept_off, &before);
  if (has_room) free(pthread_getspecific(room));
  for (int64_t s = 0; s < n_slices && !status; s++) {
    const int64_t first = s * p->k / n_slices, k = (s + 1) * p->k / n_slices - first;
    const int64_t a = a_part + first * a_step, b = b_part + first * b_step;
    const float beta = s ? 1.0f : p->beta;

    status = p->a.type == TRS_BF16
                 ? onednn->gemm_bf16(ta, tb, rows, cols, k, p->alpha, (const uint16_t *)p->a.data + a, lda,
                                     (const uint16_t *)p->b.data + b, ldb, beta, c, ldc)
                 : onednn->sgemm(ta, tb, rows, cols, k, p->alpha, (const float *)p->a.data + a, lda,
                                 (const float *)p->b.data + b, ldb, beta, c, ldc);
  }
  if (has_room) (void)pthread_setspecific(room, malloc(ROOM_BYTES));
  if (open_to_signals) pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status;
}

/*
  A division of C into `down` x `across` parts of whole units. The last parts also have the
  remainder.
*/
typedef struct {
  int64_t unit, row_units, col_units, down, across;
} TrsCut;

/* Choose the division whose largest part has the fewest units. */
static TrsCut cut_product(const TrsMatrixProduct *p)
{
  const double worth = 2.0 * (double)p->m * (double)p->n * (double)p->k /
                       (onednn ? ONEDNN_PART_FLOPS : BLAS_PART_FLOPS);
  const int64_t threads = omp_get_max_threads(), most = worth < (double)threads ? (int64_t)worth : threads;
  const int64_t unit = onednn ? ONEDNN_PART_UNIT : BLAS_PART_UNIT;
  TrsCut best = {unit, PetscMax(p->m / unit, 1), PetscMax(p->n / unit, 1), 1, 1}, cut = best;
  int64_t fewest = INT64_MAX;

  for (cut.across = 1; cut.across <= PetscMin(most, cut_columns ? cut.col_units : 1); cut.across++) {
    int64_t units;

    cut.down = PetscMin(most / cut.across, cut.row_units);
    units = (cut.row_units + cut.down - 1) / cut.down * ((cut.col_units + cut.across - 1) / cut.across);
    if (units < fewest) best = cut;
    fewest = PetscMin(units, fewest);
  }
  return best;
}

/* Return the first row or column of part i, if n rows or columns are divided into `parts` parts. */
static int64_t part_begin(int64_t i, int64_t parts, int64_t units, int64_t unit, int64_t n)
{
  return i == parts ? n : i * units / parts * unit;
}

static PetscErrorCode multiply(const TrsMatrixProduct *p)
{
  const TrsCut cut = cut_product(p);
  int failed = 0;

  PetscFunctionBegin;
#pragma omp parallel for schedule(static) collapse(2) if (cut.down * cut.across > 1) reduction(max : failed)
  for (int64_t i = 0; i < cut.down; i++)
    for (int64_t j = 0; j < cut.across; j++) {
      const int64_t row = part_begin(i, cut.down, cut.row_units, cut.unit, p->m);
      const int64_t rows = part_begin(i + 1, cut.down, cut.row_units, cut.unit, p->m) - row;
      const int64_t col = part_begin(j, cut.across, cut.col_units, cut.unit, p->n);
      const int64_t cols = part_begin(j + 1, cut.across, cut.col_units, cut.unit, p->n) - col;
      const int status = part_of_product(p, row, rows, col, cols);

      if (status > failed) failed = status;
    }
  PetscCheck(!failed, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "oneDNN: status %d from a product %lld x %lld x %lld", failed, (long long)p->m, (long long)p->n,
             (long long)p->k);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Round the stored matrix [rows, cols] to bf16. If bf16 products are fast, the result is stored as
  bf16, and otherwise as floats.
*/
static PetscErrorCode round_operand(int64_t rows, int64_t cols, TrsBuffer *buffer, TrsMatrix *matrix)
{
  const TrsCodecKernels *kernels = TrsCodecKernelsGet();
  const float *from = (const float *)matrix->data;
  const int64_t from_stride = matrix->stride;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(buffer, rows * cols * (int64_t)(fast_bf16 ? sizeof(uint16_t) : sizeof(float)),
                             PETSC_FALSE));
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    if (fast_bf16)
      kernels->narrow(0, cols, from + r * from_stride, (uint16_t *)buffer->data + r * cols);
    else
      memcpy((float *)buffer->data + r * cols, from + r * from_stride, (size_t)cols * sizeof(float));
  }
  if (!fast_bf16) PetscCall(TrsRoundMatrixCpu(NULL, rows, cols, TRS_BF16, (float *)buffer->data, cols));
  *matrix = (TrsMatrix){.type = fast_bf16 ? TRS_BF16 : TRS_FP32, .stride = cols, .data = buffer->data};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMultiplyCpu(TrsStream stream, const TrsMatrixProduct *product)
{
  TrsMatrixProduct p = *product;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(prepare_library());
  PetscCall(TrsCheckFloats(p.a.type));
  PetscCall(TrsCheckFloats(p.b.type));
  PetscCall(TrsCheckFloats(p.c.type));
  PetscCheck(p.m <= INT_MAX && p.n <= INT_MAX && p.k <= INT_MAX && p.a.stride <= INT_MAX &&
                 p.b.stride <= INT_MAX && p.c.stride <= INT_MAX,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "matrix product %lld x %lld x %lld is too large for BLAS",
             (long long)p.m, (long long)p.n, (long long)p.k);
  if (p.m == 0 || p.n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (precision == TRS_PRECISION_BF16 && p.k > 0) {
    PetscCall(round_operand(p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, &rounded[0], &p.a));
    PetscCall(round_operand(p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, &rounded[1], &p.b));
  }
  PetscCall(multiply(&p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsDType TrsOperandTypeCpu(void)
{
  return TRS_FP32; /* products round their operands themselves */
}
