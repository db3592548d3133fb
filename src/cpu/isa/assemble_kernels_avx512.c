/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compiled for AVX-512 (F, BW, DQ, VL), see CMakeLists.txt. Called only if the processor has them.
*/
#include "cpu/isa/assemble_kernels.h"

#if defined(__AVX512F__)
  #include "cpu/isa/assemble_squares_avx2.h"

/* A mask register with one bit for each lane. */
typedef __mmask8 Good;

static const Good all_good = 0xff;

INLINE Good both(Good a, Good b)
{
  return _kand_mask8(a, b);
}

/* Return a mask of the first n < 8 lanes. */
INLINE __mmask8 lanes(int64_t n)
{
  return (__mmask8)((1u << n) - 1);
}

/* Copy the ids of the lanes in `there`. All other lanes count as good. */
INLINE Good narrow_8(__mmask8 there, const int32_t *from, uint32_t limit, int64_t *to)
{
  const __m256i id = _mm256_maskz_loadu_epi32(there, from);
  const Good good = _mm256_cmple_epu32_mask(_mm256_add_epi32(id, _mm256_set1_epi32(1)),
                                            _mm256_set1_epi32((int)limit));

  _mm512_mask_storeu_epi64(to, there, _mm512_maskz_cvtepi32_epi64(good, id));
  return good;
}

INLINE Good copy_narrow(int32_t n, const int32_t *from, uint32_t limit, int64_t *to, int most)
{
  Good good = all_good;
  int64_t i = 0;

  if (most <= 16) {
    const uint32_t there = (1u << n) - 1;

    good = narrow_8((__mmask8)there, from, limit, to);
    return most <= 8 ? good : both(good, narrow_8((__mmask8)(there >> 8), from + 8, limit, to + 8));
  }
  for (; i + 8 <= n; i += 8) good = both(good, narrow_8(0xff, from + i, limit, to + i));
  return i < n ? both(good, narrow_8(lanes(n - i), from + i, limit, to + i)) : good;
}

INLINE Good wide_8(__mmask8 there, const int64_t *from, uint64_t limit, int64_t *to)
{
  const __m512i id = _mm512_maskz_loadu_epi64(there, from);
  const Good good = _mm512_cmple_epu64_mask(_mm512_add_epi64(id, _mm512_set1_epi64(1)),
                                            _mm512_set1_epi64((long long)limit));

  _mm512_mask_storeu_epi64(to, there, _mm512_maskz_mov_epi64(good, id));
  return good;
}

INLINE Good copy_wide(int32_t n, const int64_t *from, uint64_t limit, int64_t *to, int most)
{
  Good good = all_good;
  int64_t i = 0;

  if (most <= 8) return wide_8((__mmask8)((1u << n) - 1), from, limit, to);
  for (; i + 8 <= n; i += 8) good = both(good, wide_8(0xff, from + i, limit, to + i));
  return i < n ? both(good, wide_8(lanes(n - i), from + i, limit, to + i)) : good;
}

INLINE void copy_weights(int32_t n, const float *from, float *to)
{
  int64_t i = 0;

  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_loadu_ps(from + i));
  _mm256_mask_storeu_ps(to + i, lanes(n - i), _mm256_maskz_loadu_ps(lanes(n - i), from + i));
}

  #include "cpu/isa/assemble_kernels_template.h"

const TrsAssembleKernels trs_assemble_kernels_avx512 = ASSEMBLE_KERNELS;
#endif
