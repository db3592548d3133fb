/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX2, FMA and F16C, see CMakeLists.txt. Called only if the processor has them. */
#include "cpu/isa/tbe_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed only to inlined functions */

#if defined(__AVX2__)
  #include <immintrin.h>

  #define PART 8
typedef float Part __attribute__((vector_size(32)));

static inline Part widen_fp16(const uint16_t *p)
{
  return (Part)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

typedef uint32_t TrsWords __attribute__((vector_size(32)));

/* Load PART numbers of 16 bits, each as a word. */
static inline TrsWords load_halves(const uint16_t *p)
{
  return (TrsWords)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline Part widen_bf16(const uint16_t *p)
{
  return (Part)(load_halves(p) << 16);
}

static inline void nearest_fp16(uint16_t *p, Part x)
{
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
}

static inline void cut_fp16(uint16_t *p, Part x)
{
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_ZERO));
}

/* Store the lower halves of the words, which must be below 2^16. */
static inline void store_halves(uint16_t *p, TrsWords words)
{
  const __m128i low = _mm256_castsi256_si128((__m256i)words),
                high = _mm256_extracti128_si256((__m256i)words, 1);

  _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi32(low, high));
}

static inline TrsWords larger(TrsWords a, TrsWords b)
{
  return (TrsWords)_mm256_max_epu32((__m256i)a, (__m256i)b);
}

/* True if a bit of the 32 bytes is set. */
static inline int any_bit(const void *words)
{
  const __m256i bits = _mm256_loadu_si256((const __m256i *)words);

  return !_mm256_testz_si256(bits, bits);
}

  #define VECTOR_ROUNDING
  #define MAX_REGISTER_COLUMNS 128
  #include "cpu/isa/tbe_kernels_template.h"

const TrsTbeKernels trs_tbe_kernels_avx2 = TBE_KERNELS;
#endif
