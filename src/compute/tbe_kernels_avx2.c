/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX2, FMA and F16C, see CMakeLists.txt. Called only if the processor has them. */
#include "compute/tbe_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between inlined functions only */

#if defined(__AVX2__)
  #include <immintrin.h>

  #define PART 8
typedef float Part __attribute__((vector_size(32)));

static inline Part widen_fp16(const uint16_t *p)
{
  return (Part)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline Part widen_bf16(const uint16_t *p)
{
  return (Part)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)),
                                 16);
}

  #define MAX_REGISTER_COLUMNS 128
  #include "compute/tbe_kernels_template.h"

const TrsTbeKernels trs_tbe_kernels_avx2 = TBE_KERNELS;
#endif
