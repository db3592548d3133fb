/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Compares sums over ranks with results by hand. Rank r has r + 1 times a number that floats
  represent exactly. So the sums are exact for all buckets and ranges, except for the rounding of a
  precision.
*/
#include "compute/half.h"
#include "core/options/options.h"
#include "train/dense_allreduce.h"
#include "trs_test.h"

#include <string.h>

typedef struct {
  TrsCommGroups groups;
  TrsOptions options;
  TrsDenseAllreduce allreduce;
} Fixture;

static void create(Fixture *fixture, const char *bucket_bytes, const char *precision, float *grads, int64_t n)
{
  static const TrsOptionGroup *const option_groups[] = {&trs_dense_allreduce_options};
  char *argv[] = {(char *)(uintptr_t) "test", (char *)(uintptr_t) "-dense_allreduce_precision",
                  (char *)(uintptr_t)precision, (char *)(uintptr_t) "-dense_bucket_bytes",
                  (char *)(uintptr_t)bucket_bytes};
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;

  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  assert_petsc_ok(TrsCommGroupsCreate(MPI_COMM_WORLD, 0, "mpi", device, compute, &fixture->groups));
  assert_petsc_ok(
      TrsOptionsCreate(MPI_COMM_WORLD, bucket_bytes ? 5 : 3, argv, option_groups, 1, &fixture->options));
  assert_petsc_ok(TrsDenseAllreduceCreate(fixture->groups.dense, NULL, grads, n, &fixture->allreduce));
  assert_petsc_ok(TrsDenseAllreduceSetFromOptions(fixture->allreduce, fixture->options));
  assert_petsc_ok(TrsDenseAllreduceSetUp(fixture->allreduce));
}

static void finish(Fixture *fixture)
{
  assert_petsc_ok(TrsDenseAllreduceDestroy(&fixture->allreduce));
  assert_null(fixture->allreduce);
  assert_petsc_ok(TrsOptionsDestroy(&fixture->options));
  assert_petsc_ok(TrsCommGroupsDestroy(&fixture->groups));
}

/*
  Run two steps with ranges of very different sizes. Gradient j of rank r is (r + 1) * step * (j %
  64).
*/
static void step_twice(TrsDenseAllreduce allreduce, float *grads, float (*expected)(int size, float))
{
  static const int64_t ends[] = {1, 2, 16, 17, 150, 151, 900, 1003};
  const int size = trs_size(), rank = trs_rank();

  for (int step = 1; step <= 2; step++) {
    int64_t begin = 0;

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
      for (int64_t j = begin; j < ends[i]; j++) grads[j] = (float)((rank + 1) * step * (j % 64));
      assert_petsc_ok(TrsDenseAllreduceReady(allreduce, begin, ends[i]));
      begin = ends[i];
    }
    assert_petsc_ok(TrsDenseAllreduceWait(allreduce, NULL));
    for (int64_t j = 0; j < 1003; j++) assert_true(grads[j] == expected(size, (float)(step * (j % 64))));
  }
}

static float exact(int size, float x)
{
  return (float)(size * (size + 1) / 2) * x;
}

/*
  The expected sum in bf16. The numbers need 6 bits, and 3 times a number needs 8 bits. So bf16
  rounds only the sums.
*/
static float in_bf16(int size, float x)
{
  return size == 1 ? x : TrsBf16ToFloat(TrsFloatToBf16(exact(size, x)));
}

/* Buckets have from one element up to more than all elements, in every precision. */
static void test_sums(void **state)
{
  static const char *const buckets[] = {NULL, "4", "36", "1000", "1MiB"};
  static const struct {
    const char *name;
    float (*expected)(int size, float x);
  } precisions[] = {{"fp32", exact}, {"fp16", exact}, {"bf16", in_bf16}};

  (void)state;
  for (size_t b = 0; b < sizeof(buckets) / sizeof(buckets[0]); b++)
    for (size_t p = 0; p < sizeof(precisions) / sizeof(precisions[0]); p++) {
      float grads[1003];
      Fixture fixture;

      create(&fixture, buckets[b], precisions[p].name, grads, 1003);
      step_twice(fixture.allreduce, grads, precisions[p].expected);
      finish(&fixture);
    }
}

/*
  If the caller leaves a gap between ranges, or ends before the last range, this is detected as an
  error of the caller.
*/
static void test_order(void **state)
{
  float grads[8] = {0.0f};
  Fixture fixture;

  (void)state;
  create(&fixture, "64", "fp32", grads, 8);
  assert_petsc_error(TrsDenseAllreduceWait(fixture.allreduce, NULL), TRS_ERR_INTERNAL);
  assert_petsc_ok(TrsDenseAllreduceReady(fixture.allreduce, 0, 3));
  assert_petsc_error(TrsDenseAllreduceReady(fixture.allreduce, 4, 8), TRS_ERR_INTERNAL);
  assert_petsc_ok(TrsDenseAllreduceReady(fixture.allreduce, 3, 8));
  assert_petsc_ok(TrsDenseAllreduceWait(fixture.allreduce, NULL));
  TrsErrorClear();
  finish(&fixture);
}

TRS_TEST_MAIN(cmocka_unit_test(test_sums), cmocka_unit_test(test_order))
