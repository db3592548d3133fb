/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX2, FMA and F16C, see CMakeLists.txt; called only where the processor has them. A vector is two registers. */
#include "compute/tbe_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between inlined functions only */

#if defined(__AVX2__)
  #include <immintrin.h>

typedef float Vec __attribute__((vector_size(64)));
typedef union {
  Vec v;
  __m256 half[2];
  __m256i bits[2];
} TrsHalves;

static inline Vec widen_fp16(const uint16_t *p)
{
  const __m128i *from = (const __m128i *)(const void *)p;
  TrsHalves h = {
      .half = {_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from + 1))}};
  return h.v;
}

static inline Vec widen_bf16(const uint16_t *p)
{
  const __m128i *from = (const __m128i *)(const void *)p;
  TrsHalves h = {.bits = {_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), 16),
                          _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from + 1)), 16)}};
  return h.v;
}

  #define MAX_REGISTER_COLUMNS 128
  #include "compute/tbe_kernels_template.h"

const TrsTbeKernels trs_tbe_kernels_avx2 = TBE_KERNELS;
#endif
