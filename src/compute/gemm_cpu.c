/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/gemm.h"

#include "compute/cpu_kernels_dense.h"

#include <cblas.h>
#include <dlfcn.h>
#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
  OpenBLAS picks its kernels ("core") once, when it is loaded, and PETSc loads it before main(). Its own detection is right on the processors
  we know, but OPENBLAS_CORETYPE overrides it, and sites set that for all programs (Haswell for equal numbers everywhere costs half the
  speed on AVX-512). So the choice is made again here, by what the rest of our kernels use; TRSHARD_ISA lowers both.

  Threads are ours: OpenBLAS runs on one, and a product is cut by rows or columns of C. The same bits come out however it is cut, because
  OpenBLAS blocks the sum over k by k alone; but its Haswell kernels add in another order at the edge of a block of 12 rows, and of columns
  that no width makes even (tried). Hence the unit, and columns are cut on AVX-512 only.
*/

/* A part is far above the size (m*n*k <= 1e6) for which OpenBLAS has other kernels. */
#define MIN_PART_FLOPS 3.2e7
#define PART_UNIT      48 /* rows or columns: a multiple of 12 and 16 */

static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static char library_text[160];
static PetscBool cut_columns; /* may a product be cut by columns? */

/* Make OpenBLAS choose again with OPENBLAS_CORETYPE=core. The two functions are exported by every build with DYNAMIC_ARCH. */
static void choose_core(const char *core)
{
  void (*quit)(void);
  void (*init)(void);
  const char *given = getenv("OPENBLAS_CORETYPE");
  char *before = given ? strdup(given) : NULL;

  *(void **)&quit = dlsym(RTLD_DEFAULT, "gotoblas_dynamic_quit");
  *(void **)&init = dlsym(RTLD_DEFAULT, "gotoblas_dynamic_init");
  if (quit && init) {
    setenv("OPENBLAS_CORETYPE", core, 1);
    quit();
    init();
    if (before)
      setenv("OPENBLAS_CORETYPE", before, 1);
    else
      unsetenv("OPENBLAS_CORETYPE");
  }
  free(before);
}

static PetscBool is_one_of(const char *name, const char *const *names)
{
  for (int i = 0; names[i]; i++)
    if (!strcmp(name, names[i])) return PETSC_TRUE;
  return PETSC_FALSE;
}

static void library_setup(void)
{
  static const char *const avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
  static const char *const avx2[] = {"Haswell", "Zen", NULL};
  const char *isa = TrsComputeIsa();
  char config[64];

  if (!strcmp(isa, "avx512") && !is_one_of(openblas_get_corename(), avx512)) choose_core("SkylakeX");
  if (!strcmp(isa, "avx2") && !is_one_of(openblas_get_corename(), avx2)) choose_core("Haswell");
  cut_columns = is_one_of(openblas_get_corename(), avx512);
  openblas_set_num_threads(1);
  snprintf(config, sizeof(config), "%s", openblas_get_config()); /* "OpenBLAS 0.3.21 NO_AFFINITY ..." */
  for (char *space = strchr(config, ' '); space; space = NULL) {
    char *end = strchr(space + 1, ' ');

    if (end) *end = 0;
  }
  snprintf(library_text, sizeof(library_text), "%s %s, %d thread%s", config, openblas_get_corename(),
           omp_get_max_threads(), omp_get_max_threads() == 1 ? "" : "s");
}

const char *TrsGemmLibrary(void)
{
  pthread_once(&library_once, library_setup);
  return library_text;
}

PetscErrorCode TrsDensePrecisionCpu(TrsDensePrecision precision)
{
  PetscFunctionBegin;
  PetscCheck(precision == TRS_PRECISION_FP32, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-dense_precision: a CPU's products are fp32; tf32 and bf16 need -device cuda");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NOLINTNEXTLINE(readability-function-size): the slot's parameters, which are those of BLAS */
PetscErrorCode TrsGemmCpu(TrsStream stream, PetscBool trans_a, PetscBool trans_b, int64_t m, int64_t n,
                          int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                          float beta, float *c, int64_t ldc)
{
  const CBLAS_TRANSPOSE ta = trans_a ? CblasTrans : CblasNoTrans, tb = trans_b ? CblasTrans : CblasNoTrans;
  PetscBool by_rows;
  int64_t units;
  const double max_parts = 2.0 * (double)m * (double)n * (double)k / MIN_PART_FLOPS;
  int64_t n_parts = omp_get_max_threads();

  (void)stream;
  PetscFunctionBegin;
  pthread_once(&library_once, library_setup);
  PetscCheck(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX && lda <= INT_MAX && ldb <= INT_MAX &&
                 ldc <= INT_MAX,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "matrix product %lld x %lld x %lld is too large for BLAS",
             (long long)m, (long long)n, (long long)k);
  if (m == 0 || n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  by_rows = (PetscBool)(m >= n || !cut_columns);
  units = ((by_rows ? m : n) + PART_UNIT - 1) / PART_UNIT;
  if ((double)n_parts > max_parts) n_parts = (int64_t)max_parts;
  if (n_parts > units) n_parts = units;
  if (n_parts < 1) n_parts = 1;
#pragma omp parallel for schedule(static) num_threads((int)n_parts) if (n_parts > 1)
  for (int64_t part = 0; part < n_parts; part++) {
    const int64_t all = by_rows ? m : n;
    const int64_t begin = part * units / n_parts * PART_UNIT;
    const int64_t last = (part + 1) * units / n_parts * PART_UNIT;
    const int64_t end = last < all ? last : all;
    const int64_t row = by_rows ? begin : 0, col = by_rows ? 0 : begin;

    cblas_sgemm(CblasRowMajor, ta, tb, (int)(by_rows ? end - begin : m), (int)(by_rows ? n : end - begin),
                (int)k, alpha, a + (trans_a ? row : row * lda), (int)lda, b + (trans_b ? col * ldb : col),
                (int)ldb, beta, c + row * ldc + col, (int)ldc);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
