/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers in [-1, 1), with the alignment of the program's memory. */
#pragma once

#include "core/buffer.h"
#include "core/random/random.h"
#include "trs_test.h"

static float *numbers(int64_t n, uint64_t seed)
{
  float *x = NULL;

  assert_petsc_ok(TrsAlloc(n > 0 ? n : 1, sizeof(float), &x));
  TrsRandomUniformFill(seed, TRS_RANDOM_TEST, 1, 0, n, -1.0f, 1.0f, x);
  return x;
}

static void release(float *x)
{
  assert_petsc_ok(TrsFree(&x));
}
