/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST isas: avx2 */
/* TEST gemms: openblas bf16 */
/*
  Compares the CPU's matrix products with plain loops in double. Also tests which library computes
  them, and signals that arrive during a product.
*/
#include "compute/gemm.h"
#include "compute/half.h"
#include "cpu/cpu_kernels.h"
#include "numbers.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

/*
  C = alpha op(A) op(B) + beta C, with row strides longer than the rows, all transpositions, and
  sizes down to 0. rounded() rounds the operands.
*/
static void gemm_cases(float (*rounded)(float))
{
  static const int64_t sizes[][3] = {{1, 1, 1},    {5, 3, 7}, {33, 17, 65}, {130, 1, 40},
                                     {1, 130, 40}, {4, 6, 0}, {0, 3, 5},    {90, 70, 801}};

  for (size_t t = 0; t < 4 * sizeof(sizes) / sizeof(sizes[0]); t++) {
    const PetscBool ta = (PetscBool)(t & 1), tb = (PetscBool)((t >> 1) & 1);
    const int64_t m = sizes[t / 4][0], n = sizes[t / 4][1], k = sizes[t / 4][2];
    const int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 2, ldc = n + 1;
    float *a = numbers((ta ? k : m) * lda, 1), *b = numbers((tb ? n : k) * ldb, 2), *c = numbers(m * ldc, 3),
          *before = numbers(m * ldc, 3);

    assert_petsc_ok(TrsMultiplyCpu(NULL, &(TrsMatrixProduct){ta, tb, m, n, k, 2.0f, TrsFloats(a, lda),
                                                             TrsFloats(b, ldb), -0.5f, TrsFloats(c, ldc)}));
    for (int64_t i = 0; i < m; i++) {
      for (int64_t j = 0; j < n; j++) {
        double sum = -0.5 * (double)before[i * ldc + j];

        for (int64_t l = 0; l < k; l++)
          sum += 2.0 * (double)rounded(a[ta ? l * lda + i : i * lda + l]) *
                 (double)rounded(b[tb ? j * ldb + l : l * ldb + j]);
        assert_close(c[i * ldc + j], sum, 1e-5 + 2e-7 * (double)k, 1e-6);
      }
      assert_true(c[i * ldc + n] == before[i * ldc + n]); /* the gap between rows stays unchanged */
    }
    release(a);
    release(b);
    release(c);
    release(before);
  }
}

static float as_it_is(float x)
{
  return x;
}

static float to_bf16_and_back(float x)
{
  return TrsBf16ToFloat(TrsFloatToBf16(x));
}

static void test_gemm(void **state)
{
  (void)state;
  gemm_cases(as_it_is);
}

/*
  Only operands are rounded, so the results agree with exact products of the rounded numbers.
  Products of the original operands would differ by about 1e-2.
*/
static void test_gemm_bf16(void **state)
{
  (void)state;
  assert_petsc_ok(TrsDensePrecisionCpu(TRS_PRECISION_BF16));
  assert_non_null(strstr(TrsProductLibraryCpu(), "bf16"));
  gemm_cases(to_bf16_and_back);
  assert_petsc_ok(TrsDensePrecisionCpu(TRS_PRECISION_FP32));
  assert_null(strstr(TrsProductLibraryCpu(), "bf16"));
  assert_petsc_error(TrsDensePrecisionCpu(TRS_PRECISION_TF32), TRS_ERR_UNAVAILABLE);
}

/*
  TRSHARD_GEMM=openblas or a lower instruction set disables oneDNN. OpenBLAS uses the kernels of our
  instruction set, regardless of OPENBLAS_CORETYPE.
*/
static void test_library(void **state)
{
  const char *text = TrsProductLibraryCpu(), *choice = getenv("TRSHARD_GEMM");
  const int avx512 = !strcmp(TrsComputeIsa(), "avx512");

  (void)state;
  assert_true(strstr(text, "OpenBLAS") || (avx512 && strstr(text, "oneDNN")));
  if (choice && !strcmp(choice, "openblas")) assert_null(strstr(text, "oneDNN"));
  assert_non_null(strstr(text, "thread"));
  if (avx512) assert_null(strstr(text, "Haswell"));
}

static void on_tick(int number)
{
  volatile char of_handler[512];

  for (size_t i = 0; i < sizeof(of_handler); i++) of_handler[i] = (char)number;
}

/*
  Signals that arrive during products do not change the result. A run that is asked to stop gets
  such signals. The shapes are small layers.
*/
static void test_signals(void **state)
{
  enum { MOST = 160, SECONDS = 4 };
  static const int sizes[] = {1, 13, 16, 32, 52, 128};
  const struct itimerval often = {.it_interval = {.tv_usec = 500}, .it_value = {.tv_usec = 500}},
                         never = {.it_value = {0}};
  const struct sigaction ours = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
  struct sigaction before;
  float *a = numbers(MOST * MOST, 41), *b = numbers(MOST * MOST, 42), *c = numbers(MOST * MOST, 43),
        *wanted = numbers(MOST * MOST, 43);
  const time_t end = time(NULL) + SECONDS;

  (void)state;
  assert_int_equal(sigaction(SIGPROF, &ours, &before), 0);
  for (unsigned i = 0; time(NULL) < end; i++) {
    const int64_t m = sizes[i % 6], n = sizes[i / 6 % 6], k = sizes[i / 36 % 6];
    const PetscBool trans_a = (PetscBool)(i / 216 % 2), trans_b = (PetscBool)(i / 432 % 2);

    assert_petsc_ok(
        TrsMultiplyCpu(NULL, &(TrsMatrixProduct){trans_a, trans_b, m, n, k, 1.0F, TrsFloats(a, MOST),
                                                 TrsFloats(b, MOST), 0.0F, TrsFloats(wanted, MOST)}));
    setitimer(ITIMER_PROF, &often, NULL);
    for (int repeat = 0; repeat < 200; repeat++)
      assert_petsc_ok(
          TrsMultiplyCpu(NULL, &(TrsMatrixProduct){trans_a, trans_b, m, n, k, 1.0F, TrsFloats(a, MOST),
                                                   TrsFloats(b, MOST), 0.0F, TrsFloats(c, MOST)}));
    setitimer(ITIMER_PROF, &never, NULL);
    assert_memory_equal(c, wanted, MOST * MOST * sizeof(float));
  }
  sigaction(SIGPROF, &before, NULL);
  release(a);
  release(b);
  release(c);
  release(wanted);
}

TRS_TEST_MAIN(cmocka_unit_test(test_gemm), cmocka_unit_test(test_gemm_bf16), cmocka_unit_test(test_library),
              cmocka_unit_test(test_signals))
