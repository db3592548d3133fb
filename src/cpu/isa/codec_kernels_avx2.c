/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX2 and F16C, see CMakeLists.txt. Called only if the processor has them. */
#include "cpu/isa/codec_kernels.h"

#if defined(__AVX2__)
  #include <immintrin.h>
  #include <string.h>

  #define VECTOR 8

typedef float Vec __attribute__((vector_size(4 * VECTOR)));
typedef uint32_t Words __attribute__((vector_size(4 * VECTOR)));

/* Return the smaller lane, or b if either argument is NaN. maximum() treats NaN in the same way. */
static inline Vec minimum(Vec a, Vec b)
{
  return (Vec)_mm256_min_ps((__m256)a, (__m256)b);
}

static inline Vec maximum(Vec a, Vec b)
{
  return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
}

static inline Vec multiply_add(Vec a, Vec b, Vec c)
{
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static inline float least_lane(Vec v)
{
  __m128 x = _mm_min_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));

  x = _mm_min_ps(x, _mm_movehl_ps(x, x));
  return _mm_min_ss(x, _mm_shuffle_ps(x, x, 1))[0];
}

/* Load VECTOR bytes as integers. narrow_bytes() stores the lowest byte of each integer. */
static inline Words widen_bytes(const uint8_t *p)
{
  return (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

static inline void narrow_bytes(uint8_t *p, Words w)
{
  const __m256i low = _mm256_shuffle_epi8((__m256i)w, _mm256_set1_epi32(0x0c080400));
  const int half[2] = {_mm256_extract_epi32(low, 0), _mm256_extract_epi32(low, 4)};

  memcpy(p, half, sizeof(half));
}

static inline Vec widen_fp16(const uint16_t *p)
{
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void narrow_fp16(uint16_t *p, Vec v)
{
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
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

const TrsCodecKernels trs_codec_kernels_avx2 = CODEC_KERNELS;
#endif
