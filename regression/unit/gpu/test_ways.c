/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  The choice between two ways to compute a result. The faster way is used only if both have the same
  results except for rounding. Without a GPU, the tests do nothing.
*/
#include "compute/half.h"
#include "gpu/gemm/ways_cuda.h"
#include "trs_test.h"

#include <math.h>
#include <string.h>

enum { NUMBERS = 1 << 20, SLOWER = 50 };

static const TrsDeviceOps *const device = &trs_device_cuda;
static float of_fused[NUMBERS], of_apart[NUMBERS];
static uint16_t narrow_fused[NUMBERS], narrow_apart[NUMBERS];
static void *floats, *narrow;
static int n_fused, n_apart;
static PetscBool writes = PETSC_TRUE; /* the second way writes its results */

static PetscErrorCode write_results(TrsStream stream, const float *numbers, const uint16_t *bits)
{
  PetscFunctionBegin;
  PetscCall(device->copy(floats, numbers, sizeof(of_fused), stream));
  PetscCall(device->copy(narrow, bits, sizeof(narrow_fused), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_apart(TrsStream stream, const void *layer)
{
  (void)layer;
  PetscFunctionBegin;
  n_apart++;
  for (int i = 0; i < SLOWER; i++) PetscCall(write_results(stream, of_apart, narrow_apart));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_fused(TrsStream stream, const void *layer)
{
  (void)layer;
  PetscFunctionBegin;
  n_fused++;
  if (writes) PetscCall(write_results(stream, of_fused, narrow_fused));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Time both ways. In numbers `first` to `last` - 1, their results differ by these relative amounts.
  Return true if the second way, which is faster, is used afterwards.
*/
static PetscBool is_chosen(float of_floats, float of_narrow, int first, int last)
{
  const TrsWays ways = {.what = "a result",
                        .m = NUMBERS,
                        .n = 1,
                        .k = 1,
                        .run_apart = run_apart,
                        .run_fused = run_fused,
                        .result = {{floats, NUMBERS, TRS_FP32}, {narrow, NUMBERS, TRS_BF16}}};
  char text[256] = "";
  PetscBool chosen;

  for (int i = 0; i < NUMBERS; i++) {
    const float x = 1.0F + (float)(i % 97) / 97.0F;

    of_apart[i] = of_fused[i] = x;
    if (i >= first && i < last) of_fused[i] += of_floats * x;
    narrow_apart[i] = TrsFloatToBf16(x);
    narrow_fused[i] = TrsFloatToBf16(i >= first && i < last ? x + of_narrow * x : x);
  }
  TrsWaysForget(PETSC_TRUE);
  for (int i = 0; i < 2; i++) assert_petsc_ok(TrsWaysRun(NULL, &ways));
  n_apart = n_fused = 0;
  assert_petsc_ok(TrsWaysRun(NULL, &ways));
  assert_int_equal(n_apart + n_fused, 1);
  chosen = (PetscBool)(n_fused == 1);
  assert_int_equal(TrsWaysFused(), chosen);
  TrsWaysText(text, sizeof(text));
  assert_non_null(strstr(text, chosen ? ": one kernel, " : ": two kernels, "));
  assert_int_equal(strstr(text, "different results") != NULL, !chosen);
  return chosen;
}

static void test_choice(void **state)
{
  int n_devices;
  char why_not[256];

  (void)state;
  assert_petsc_ok(device->available(&n_devices, why_not, sizeof(why_not)));
  if (n_devices == 0) skip();
  assert_petsc_ok(device->setup(0, 1));
  assert_petsc_ok(device->alloc(sizeof(of_fused), &floats));
  assert_petsc_ok(device->alloc(sizeof(narrow_fused), &narrow));
  assert_true(is_chosen(0, 0, 0, NUMBERS));
  assert_true(is_chosen(1e-4F, 0x1p-8F, 0, NUMBERS)); /* differences by rounding */
  assert_false(is_chosen(0.1F, 0, 0, NUMBERS));
  assert_false(is_chosen(0, 0.1F, 0, NUMBERS));
  assert_false(is_chosen(0, 1.0F, 0, 8));                 /* a few numbers at the beginning */
  assert_false(is_chosen(1.0F, 0, NUMBERS - 8, NUMBERS)); /* a few numbers at the end */
  assert_false(is_chosen(NAN, 0, 5, 6));
  writes = PETSC_FALSE;
  assert_false(is_chosen(0, 0, 0, NUMBERS));
  assert_petsc_ok(device->release(&floats));
  assert_petsc_ok(device->release(&narrow));
}

TRS_TEST_MAIN(cmocka_unit_test(test_choice))
