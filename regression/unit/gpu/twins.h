/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares kernels of the GPU with the CPU, for tests on one rank. Both backends get the same
  arguments. The GPU's call runs twice and must give the same bits. test_find() must run first;
  without a GPU, `cuda` stays NULL.
*/
#pragma once

#include "compute/compute_ops.h"
#include "core/random/random.h"
#include "trs_test.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { MOST_ARRAYS = 10 };

static const TrsDeviceOps *device;
static const TrsComputeOps *cpu, *cuda;
static char about[256]; /* a text about the GPU */

/* An argument: its values before the call, and the results of each backend. */
typedef struct {
  int64_t bytes;
  /* true for doubles; false for floats, or for whole numbers that calls must not change */
  PetscBool is_double;
  void *before, *by_cpu, *by_cuda, *again, *on_device;
} Array;

typedef struct {
  int n;
  Array array[MOST_ARRAYS];
} Arguments;

static float draw(uint64_t array, uint64_t i)
{
  uint32_t bits[4];

  TrsRandom(7, TRS_RANDOM_TEST, array, i, bits);
  return (float)(int32_t)bits[0] * 0x1p-31f;
}

/* Add an argument with these values, and take ownership of `values`. */
static inline void add_values(Arguments *arguments, int64_t bytes, PetscBool is_double, void *values)
{
  Array *a = &arguments->array[arguments->n++];

  *a = (Array){.bytes = bytes, .is_double = is_double, .before = values};
  a->by_cpu = malloc((size_t)a->bytes);
  a->by_cuda = malloc((size_t)a->bytes);
  a->again = malloc((size_t)a->bytes);
  memcpy(a->by_cpu, values, (size_t)a->bytes);
  assert_petsc_ok(device->alloc(a->bytes, &a->on_device));
}

/* Add an argument of n random numbers in [-1, 1). One number follows that calls must not change. */
static inline void add(Arguments *arguments, int64_t n)
{
  float *values = calloc((size_t)(n > 0 ? n : 0) + 1, sizeof(*values));

  for (int64_t i = 0; i <= n; i++) values[i] = draw((uint64_t)arguments->n + 1, (uint64_t)i);
  add_values(arguments, (n + 1) * (int64_t)sizeof(*values), PETSC_FALSE, values);
}

static inline void to_device(Arguments *arguments)
{
  for (int i = 0; i < arguments->n; i++)
    assert_petsc_ok(device->copy(arguments->array[i].on_device, arguments->array[i].before,
                                 arguments->array[i].bytes, NULL));
}

static inline void from_device(Arguments *arguments, int again)
{
  for (int i = 0; i < arguments->n; i++) {
    Array *a = &arguments->array[i];
    assert_petsc_ok(device->copy(again ? a->again : a->by_cuda, a->on_device, a->bytes, NULL));
  }
  assert_petsc_ok(device->stream_synchronize(NULL));
}

/*
  Compare all arguments, even inputs: |difference| <= tolerance * (1 + |value|). If the tolerance is
  0, compare bits.
*/
static inline void compare(Arguments *arguments, double tolerance)
{
  for (int i = 0; i < arguments->n; i++) {
    Array *a = &arguments->array[i];
    const float *expected = a->by_cpu, *found = a->by_cuda;

    assert_memory_equal(a->by_cuda, a->again, (size_t)a->bytes);
    if (tolerance == 0) assert_memory_equal(a->by_cpu, a->by_cuda, (size_t)a->bytes);
    for (int64_t k = 0; a->is_double && k < a->bytes / 8; k++)
      assert_close(((const double *)a->by_cuda)[k], ((const double *)a->by_cpu)[k], tolerance, tolerance);
    for (int64_t k = 0; !a->is_double && tolerance > 0 && k < a->bytes / 4; k++)
      if (!isnan(expected[k]) || !isnan(found[k])) assert_close(found[k], expected[k], tolerance, tolerance);
    free(a->before);
    free(a->by_cpu);
    free(a->by_cuda);
    free(a->again);
    assert_petsc_ok(device->release(&a->on_device));
  }
}

/*
  Run `call` once on the CPU, with its arrays in x[] and its table in `ops`. Then run it twice on
  the GPU.
*/
#define TWINS(arguments, tolerance, call) \
  do { \
    float *x[MOST_ARRAYS]; \
    const TrsComputeOps *ops = cpu; \
    for (int i_ = 0; i_ < (arguments).n; i_++) x[i_] = (arguments).array[i_].by_cpu; \
    assert_petsc_ok(call); \
    ops = cuda; \
    for (int i_ = 0; i_ < (arguments).n; i_++) x[i_] = (arguments).array[i_].on_device; \
    for (int again_ = 0; again_ < 2; again_++) { \
      to_device(&(arguments)); \
      assert_petsc_ok(call); \
      from_device(&(arguments), again_); \
    } \
    compare(&(arguments), (tolerance)); \
  } while (0)

static void test_find(void **state)
{
  char why_not[256];
  int n_devices;

  (void)state;
  assert_petsc_ok(TrsDeviceFind("cuda", &device));
  assert_petsc_ok(device->available(&n_devices, why_not, sizeof(why_not)));
  if (n_devices == 0) skip(); /* the build uses nvcc, but the machine has no GPU */
  assert_petsc_ok(device->setup(0, 1));
  assert_petsc_ok(device->about(about, sizeof(about)));
  assert_petsc_ok(TrsComputeFind("cpu", &cpu));
  assert_petsc_ok(TrsComputeFind("cuda", &cuda));
}
