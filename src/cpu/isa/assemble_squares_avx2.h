/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Transposition of 8 x 8 numbers with AVX2, for assemble_kernels_avx2.c and
  assemble_kernels_avx512.c.
*/
#include <immintrin.h>

/* Load columns col .. col + 3 of row r as the lower half, and of row r + 4 as the upper half. */
INLINE __m256i halves(const int32_t *const *row, int r, int col)
{
  const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(row[r] + col)),
                high = _mm_loadu_si128((const __m128i *)(const void *)(row[r + 4] + col));

  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

INLINE void store_column(int32_t *to, __m256i column)
{
  _mm256_storeu_si256((__m256i *)(void *)to, column);
}

/* Transpose four columns of eight rows. */
INLINE void transpose_4(const int32_t *const *row, int col, int32_t *to)
{
  const __m256i a = halves(row, 0, col), b = halves(row, 1, col), c = halves(row, 2, col),
                d = halves(row, 3, col);
  const __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
  const __m256i ab_high = _mm256_unpackhi_epi32(a, b), cd_high = _mm256_unpackhi_epi32(c, d);

  store_column(to, _mm256_unpacklo_epi64(ab, cd));
  store_column(to + TrsTilePlace(1, 0), _mm256_unpackhi_epi64(ab, cd));
  store_column(to + TrsTilePlace(2, 0), _mm256_unpacklo_epi64(ab_high, cd_high));
  store_column(to + TrsTilePlace(3, 0), _mm256_unpackhi_epi64(ab_high, cd_high));
}

INLINE void transpose_8(const int32_t *const *row, int col, int32_t *to)
{
  transpose_4(row, col, to);
  transpose_4(row, col + 4, to + TrsTilePlace(4, 0));
}
