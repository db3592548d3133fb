/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compiled for AVX-512 (F, BW, DQ, VL), see CMakeLists.txt. Called only if the processor has them.
*/
#include "cpu/isa/dense_kernels.h"

#if defined(__AVX512F__)
  #include <immintrin.h>

  #define VECTOR           16
  #define BACKWARD_VECTORS 4

typedef float TrsVec __attribute__((vector_size(4 * VECTOR)));

static inline TrsVec load_lanes(const float *p, int lanes)
{
  return (TrsVec)_mm512_maskz_loadu_ps((__mmask16)((1u << lanes) - 1), p);
}

static inline void store_lanes(float *p, TrsVec v, int lanes)
{
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << lanes) - 1), (__m512)v);
}

static inline void stream_vec(float *p, TrsVec v)
{
  _mm512_stream_ps(p, (__m512)v);
}

/* Return a bit for each lane, which is set unless the lane is <= 0. So it is also set for NaN. */
static inline uint32_t passes_relu(TrsVec v)
{
  return _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_NLE_UQ);
}

/* Keep the lanes whose bits are set, and set the others to 0. */
static inline TrsVec keep_lanes(TrsVec v, uint32_t bits)
{
  return (TrsVec)_mm512_maskz_mov_ps((__mmask16)bits, (__m512)v);
}

static inline TrsVec mul_add(TrsVec a, TrsVec b, TrsVec sum)
{
  return (TrsVec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
}

static inline TrsVec fold(const TrsVec v[VECTOR])
{
  __m512 t[8], quad[4], halves[2];

  for (int64_t i = 0; i < 8; i++) { /* lanes 0 and 2 of each quarter, and lanes 1 and 3 */
    const __m512 a = (__m512)v[2 * i], b = (__m512)v[2 * i + 1];

    t[i] = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  }
  for (int64_t i = 0; i < 4; i++) /* each quarter has the sums of v[4 * i] .. v[4 * i + 3] */
    quad[i] = _mm512_add_ps(_mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                            _mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
  for (int64_t i = 0; i < 2; i++)
    halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(quad[2 * i], quad[2 * i + 1], 0x88),
                              _mm512_shuffle_f32x4(quad[2 * i], quad[2 * i + 1], 0xdd));
  return (TrsVec)_mm512_add_ps(_mm512_shuffle_f32x4(halves[0], halves[1], 0x88),
                               _mm512_shuffle_f32x4(halves[0], halves[1], 0xdd));
}

  #include "cpu/isa/dense_kernels_template.h"

const TrsDenseKernels trs_dense_kernels_avx512 = DENSE_KERNELS;
#endif
