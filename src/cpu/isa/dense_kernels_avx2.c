/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX2 and FMA, see CMakeLists.txt. Called only if the processor has them. */
#include "cpu/isa/dense_kernels.h"

#if defined(__AVX2__)
  #include <immintrin.h>

  #define VECTOR           8
  #define BACKWARD_VECTORS 2

typedef float TrsVec __attribute__((vector_size(4 * VECTOR)));

static inline __m256i first_lanes(int lanes)
{
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline TrsVec load_lanes(const float *p, int lanes)
{
  return (TrsVec)_mm256_maskload_ps(p, first_lanes(lanes));
}

static inline void store_lanes(float *p, TrsVec v, int lanes)
{
  _mm256_maskstore_ps(p, first_lanes(lanes), (__m256)v);
}

static inline void stream_vec(float *p, TrsVec v)
{
  _mm256_stream_ps(p, (__m256)v);
}

/* Return a bit for each lane, which is set unless the lane is <= 0. So it is also set for NaN. */
static inline uint32_t passes_relu(TrsVec v)
{
  return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)v, _mm256_setzero_ps(), _CMP_NLE_UQ));
}

/* Keep the lanes whose bits are set, and set the others to 0. */
static inline TrsVec keep_lanes(TrsVec v, uint32_t bits)
{
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane);

  return (TrsVec)_mm256_and_ps((__m256)v, _mm256_castsi256_ps(set));
}

static inline TrsVec mul_add(TrsVec a, TrsVec b, TrsVec sum)
{
  return (TrsVec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
}

static inline TrsVec fold(const TrsVec v[VECTOR])
{
  __m256 t[4], half[2];

  for (int64_t i = 0; i < 4; i++) { /* lanes 0 and 2 of each half, and lanes 1 and 3 */
    const __m256 a = (__m256)v[2 * i], b = (__m256)v[2 * i + 1];

    t[i] = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  }
  for (int64_t i = 0; i < 2; i++)
    half[i] = _mm256_add_ps(_mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                            _mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
  return (TrsVec)_mm256_add_ps(_mm256_permute2f128_ps(half[0], half[1], 0x20),
                               _mm256_permute2f128_ps(half[0], half[1], 0x31));
}

  #include "cpu/isa/dense_kernels_template.h"

const TrsDenseKernels trs_dense_kernels_avx2 = DENSE_KERNELS;
#endif
