/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Kernels for any processor. Vectors have four floats, as in the compiler's base instruction sets.
*/
#include "compute/half.h"
#include "cpu/isa/tbe_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed only to inlined functions */

#define PART 4
typedef float Part __attribute__((vector_size(16)));

static inline Part widen_fp16(const uint16_t *p)
{
  Part v;
  for (int i = 0; i < PART; i++) v[i] = TrsHalfToFloat(p[i]);
  return v;
}

static inline Part widen_bf16(const uint16_t *p)
{
  Part v;
  for (int i = 0; i < PART; i++) v[i] = TrsBf16ToFloat(p[i]);
  return v;
}

#define MAX_REGISTER_COLUMNS 64
#include "cpu/isa/tbe_kernels_template.h"

const TrsTbeKernels trs_tbe_kernels_portable = TBE_KERNELS;
