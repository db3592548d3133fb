/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers of bf16 on the device, for tests that compare kernels with the CPU. */
#pragma once

#include "gpu/twins.h"

/* A bf16 copy of n host floats on the device. */
static inline void *narrowed(const float *values, int64_t n)
{
  void *copy, *floats;

  assert_petsc_ok(device->alloc(4 * n, &floats));
  assert_petsc_ok(device->alloc(2 * n, &copy));
  assert_petsc_ok(device->copy(floats, values, 4 * n, NULL));
  assert_petsc_ok(cuda->convert(NULL, n, TRS_FP32, floats, TRS_BF16, copy));
  assert_petsc_ok(device->stream_synchronize(NULL));
  assert_petsc_ok(device->release(&floats));
  return copy;
}

/*
  Check that n numbers of a type on the device are close to the expected numbers. bf16 rounds by
  at most 2^-8.
*/
static inline void assert_near_on_device(const void *found, TrsDType type, const float *expected, int64_t n,
                                         double tolerance)
{
  const void *from = found;
  void *floats;
  float *values = calloc((size_t)n, sizeof(*values));

  assert_petsc_ok(device->alloc(4 * n, &floats));
  if (type == TRS_BF16) {
    assert_petsc_ok(cuda->convert(NULL, n, TRS_BF16, found, TRS_FP32, floats));
    from = floats;
  }
  assert_petsc_ok(device->copy(values, from, 4 * n, NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  for (int64_t i = 0; i < n; i++) assert_close(values[i], expected[i], tolerance, tolerance);
  assert_petsc_ok(device->release(&floats));
  free(values);
}

/*
  n random numbers that bf16 can represent, in host memory, and on the device as bf16 or as floats.
*/
static inline float *held_numbers(uint64_t array, int64_t n, PetscBool narrow, void **on)
{
  float *values = calloc((size_t)n, sizeof(*values));

  for (int64_t i = 0; i < n; i++) values[i] = draw(array, (uint64_t)i);
  assert_petsc_ok(cpu->round_matrix(NULL, 1, n, TRS_BF16, values, n));
  if (narrow) {
    *on = narrowed(values, n);
  } else {
    assert_petsc_ok(device->alloc(4 * n, on));
    assert_petsc_ok(device->copy(*on, values, 4 * n, NULL));
    assert_petsc_ok(device->stream_synchronize(NULL));
  }
  return values;
}

/* The copy of an array that the backend uses, with this type. */
static inline TrsMatrix matrix_on(int backend, float *host, void *on, TrsDType type, int64_t stride)
{
  return backend ? (TrsMatrix){.type = type, .stride = stride, .data = on} : TrsFloats(host, stride);
}

/* A copy of bytes of device memory. The caller must free() it. */
static inline char *bytes_on_device(const void *from, int64_t bytes)
{
  char *copy = malloc((size_t)bytes);

  assert_petsc_ok(device->copy(copy, from, bytes, NULL));
  assert_petsc_ok(device->stream_synchronize(NULL));
  return copy;
}
