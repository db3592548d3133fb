/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX-512 (F, BW, DQ, VL), see CMakeLists.txt; called only where the processor has them. */
#include "compute/dense_kernels.h"

#if defined(__AVX512F__)
  #include <immintrin.h>

  #define VECTOR           16
  #define FORWARD_ROWS     9 /* 27 = 3 * 9: Criteo's 26 features and the dense vector */
  #define BACKWARD_VECTORS 4

typedef float TrsVec __attribute__((vector_size(4 * VECTOR)));

static inline __mmask16 lanes_between(int begin, int end)
{
  return (__mmask16)(((1u << end) - 1) & ~((1u << begin) - 1));
}

static inline TrsVec load_lanes(const float *p, int begin, int end)
{
  return (TrsVec)_mm512_maskz_loadu_ps(lanes_between(begin, end), p);
}

static inline void store_lanes(float *p, TrsVec v, int begin, int end)
{
  _mm512_mask_storeu_ps(p, lanes_between(begin, end), (__m512)v);
}

static inline void transpose(const float *const row[VECTOR], float *to, int64_t to_stride)
{
  __m512 r[16], t[16];

  for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(row[i]);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) { /* r[i + c]: column c, 4 + c, 8 + c, 12 + c of rows i .. i + 3 */
    r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int c = 0; c < 4; c++) { /* 4 x 4 blocks of 4 lanes */
    const __m512 even_low = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88),
                 odd_low = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
    const __m512 even_high = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
    const __m512 odd_high = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);

    _mm512_storeu_ps(to + c * to_stride, _mm512_shuffle_f32x4(even_low, even_high, 0x88));
    _mm512_storeu_ps(to + (4 + c) * to_stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0x88));
    _mm512_storeu_ps(to + (8 + c) * to_stride, _mm512_shuffle_f32x4(even_low, even_high, 0xdd));
    _mm512_storeu_ps(to + (12 + c) * to_stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd));
  }
}

  #include "compute/dense_kernels_template.h"

const TrsDenseKernels trs_dense_kernels_avx512 = DENSE_KERNELS;
#endif
