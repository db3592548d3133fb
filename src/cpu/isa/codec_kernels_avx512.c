/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compiled for AVX-512 (F, BW, DQ, VL), see CMakeLists.txt. Called only if the processor has them.
*/
#include "cpu/isa/codec_kernels.h"

#if defined(__AVX512F__)
  #include <immintrin.h>
  #include <string.h>

  #define VECTOR 16

typedef float Vec __attribute__((vector_size(4 * VECTOR)));
typedef uint32_t Words __attribute__((vector_size(4 * VECTOR)));

/* Return the smaller lane, or b if either argument is NaN. maximum() treats NaN in the same way. */
static inline Vec minimum(Vec a, Vec b)
{
  return (Vec)_mm512_min_ps((__m512)a, (__m512)b);
}

static inline Vec maximum(Vec a, Vec b)
{
  return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
}

static inline Vec multiply_add(Vec a, Vec b, Vec c)
{
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline float least_lane(Vec v)
{
  return _mm512_reduce_min_ps((__m512)v);
}

/* Load VECTOR bytes as integers. narrow_bytes() stores the lowest byte of each integer. */
static inline Words widen_bytes(const uint8_t *p)
{
  return (Words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void narrow_bytes(uint8_t *p, Words w)
{
  _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8((__m512i)w));
}

static inline Vec widen_fp16(const uint16_t *p)
{
  return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline void narrow_fp16(uint16_t *p, Vec v)
{
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

static inline void scale_and_bias(const uint8_t *row, float *scale, float *bias)
{
  int bits;
  __m128 pair;

  memcpy(&bits, row, sizeof(bits));
  pair = _mm_cvtph_ps(_mm_cvtsi32_si128(bits));
  *scale = pair[0];
  *bias = pair[1];
}

  #include "cpu/isa/codec_kernels_template.h"

const TrsCodecKernels trs_codec_kernels_avx512 = CODEC_KERNELS;
#endif
