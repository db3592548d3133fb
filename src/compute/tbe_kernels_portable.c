/* SPDX-License-Identifier: BSD-3-Clause */
/* For any processor: vectors become whatever the compiler's base instruction set has. */
#include "compute/half.h"
#include "compute/tbe_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between inlined functions only */

typedef float Vec __attribute__((vector_size(64)));

static inline Vec widen_fp16(const uint16_t *p)
{
  Vec v;
  for (int i = 0; i < 16; i++) v[i] = TrsHalfToFloat(p[i]);
  return v;
}

static inline Vec widen_bf16(const uint16_t *p)
{
  Vec v;
  for (int i = 0; i < 16; i++) v[i] = TrsBf16ToFloat(p[i]);
  return v;
}

#define MAX_REGISTER_COLUMNS 64
#include "compute/tbe_kernels_template.h"

const TrsTbeKernels trs_tbe_kernels_portable = TBE_KERNELS;
