/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compiled for AVX-512 (F, BW, DQ, VL), see CMakeLists.txt. Called only if the processor has them.
*/
#include "cpu/isa/tbe_kernels.h"

#if defined(__AVX512F__)
  #include <immintrin.h>

  #define PART 16
typedef float Part __attribute__((vector_size(64)));

static inline Part widen_fp16(const uint16_t *p)
{
  return (Part)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

typedef uint32_t TrsWords __attribute__((vector_size(64)));

/* Load PART numbers of 16 bits, each as a word. */
static inline TrsWords load_halves(const uint16_t *p)
{
  return (TrsWords)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline Part widen_bf16(const uint16_t *p)
{
  return (Part)(load_halves(p) << 16);
}

static inline void nearest_fp16(uint16_t *p, Part x)
{
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
}

static inline void cut_fp16(uint16_t *p, Part x)
{
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_ZERO));
}

/* Store the lower halves of the words, which must be below 2^16. */
static inline void store_halves(uint16_t *p, TrsWords words)
{
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)words));
}

static inline TrsWords larger(TrsWords a, TrsWords b)
{
  return (TrsWords)_mm512_max_epu32((__m512i)a, (__m512i)b);
}

/* True if a bit of the 64 bytes is set. */
static inline int any_bit(const void *words)
{
  const __m512i bits = _mm512_loadu_si512(words);

  return _mm512_test_epi32_mask(bits, bits) != 0;
}

  #define VECTOR_ROUNDING
  #define MAX_REGISTER_COLUMNS 256
  #include "cpu/isa/tbe_kernels_template.h"

const TrsTbeKernels trs_tbe_kernels_avx512 = TBE_KERNELS;
#endif
