/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX2 and FMA, see CMakeLists.txt; called only where the processor has them. */
#include "compute/dense_kernels.h"

#if defined(__AVX2__)
  #include <immintrin.h>

  #define VECTOR           8
  #define FORWARD_ROWS     6
  #define BACKWARD_VECTORS 2

typedef float TrsVec __attribute__((vector_size(4 * VECTOR)));

static inline __m256i lanes_between(int begin, int end)
{
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                             _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
}

static inline TrsVec load_lanes(const float *p, int begin, int end)
{
  return (TrsVec)_mm256_maskload_ps(p, lanes_between(begin, end));
}

static inline void store_lanes(float *p, TrsVec v, int begin, int end)
{
  _mm256_maskstore_ps(p, lanes_between(begin, end), (__m256)v);
}

static inline void transpose(const float *const row[VECTOR], float *to, int64_t to_stride)
{
  __m256 r[8], t[8];

  for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(row[i]);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; i++) {
    _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

  #include "compute/dense_kernels_template.h"

const TrsDenseKernels trs_dense_kernels_avx2 = DENSE_KERNELS;
#endif
