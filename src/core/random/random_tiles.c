/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/random/random_tiles.h"

#include "core/random/philox.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
  #include <immintrin.h>
#endif

/* --- any processor --- */

static int always(void)
{
  return 1;
}

/* Compute TrsPhilox() for a tile of blocks, one word of all blocks after another. */
static void philox_tile(uint64_t key, uint64_t a, uint64_t block, uint32_t c[4][TRS_TILE_BLOCKS])
{
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

  for (int i = 0; i < TRS_TILE_BLOCKS; i++) {
    uint64_t b = block + (uint64_t)i;

    c[0][i] = (uint32_t)b;
    c[1][i] = (uint32_t)(b >> 32);
    c[2][i] = (uint32_t)a;
    c[3][i] = (uint32_t)(a >> 32);
  }
  for (int round = 0; round < TRS_PHILOX_ROUNDS; round++) {
    for (int i = 0; i < TRS_TILE_BLOCKS; i++) {
      uint64_t p0 = (uint64_t)TRS_PHILOX_M0 * c[0][i], p1 = (uint64_t)TRS_PHILOX_M1 * c[2][i];

      c[0][i] = (uint32_t)(p1 >> 32) ^ c[1][i] ^ k0;
      c[1][i] = (uint32_t)p1;
      c[2][i] = (uint32_t)(p0 >> 32) ^ c[3][i] ^ k1;
      c[3][i] = (uint32_t)p0;
    }
    k0 += TRS_PHILOX_W0;
    k1 += TRS_PHILOX_W1;
  }
}

static void fill_portable(uint64_t key, uint64_t a, uint64_t block, int64_t n, float lo, float width,
                          float *out)
{
  uint32_t c[4][TRS_TILE_BLOCKS];

  for (int64_t tile = 0; tile < n; tile++, block += TRS_TILE_BLOCKS, out += TRS_TILE) {
    philox_tile(key, a, block, c);
    for (int i = 0; i < TRS_TILE_BLOCKS; i++)
      for (int w = 0; w < 4; w++) out[4 * i + w] = lo + width * ((float)(int32_t)(c[w][i] >> 8) * 0x1p-24f);
  }
}

#if defined(__x86_64__)

/*
  A 64-bit lane has one word of one block in its lower half. The multiplication reads only the lower
  half, so bits that a round leaves in the upper half need not be cleared. Ten rounds depend on each
  other; working on several sets of blocks at the same time hides their latency.
*/

/* --- AVX-512 --- */

static int has_avx512(void)
{
  return __builtin_cpu_supports("avx512f");
}

enum { TRS_SETS_512 = TRS_TILE_BLOCKS / 8 };

/* Store the numbers of 8 blocks, whose words are c[0..3]. */
__attribute__((target("avx512f"))) static inline void store_512(const __m512i c[4], __m512 lo, __m512 width,
                                                                float *out)
{
  const __m512i order[2] = {_mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0),
                            _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4)};
  const __m512i words01 = _mm512_mask_shuffle_epi32(c[0], 0xAAAA, c[1], (_MM_PERM_ENUM)0x80),
                words23 = _mm512_mask_shuffle_epi32(c[2], 0xAAAA, c[3], (_MM_PERM_ENUM)0x80);

  for (int half = 0; half < 2; half++) {
    const __m512i bits = _mm512_srli_epi32(_mm512_permutex2var_epi64(words01, order[half], words23), 8);
    const __m512 fraction = _mm512_mul_ps(_mm512_cvtepi32_ps(bits), _mm512_set1_ps(0x1p-24f));

    _mm512_storeu_ps(out + (ptrdiff_t)16 * half, _mm512_add_ps(lo, _mm512_mul_ps(width, fraction)));
  }
}

__attribute__((target("avx512f"))) static void fill_avx512(uint64_t key, uint64_t a, uint64_t block,
                                                           int64_t n, float lo, float width, float *out)
{
  const __m512i m0 = _mm512_set1_epi64(TRS_PHILOX_M0), m1 = _mm512_set1_epi64(TRS_PHILOX_M1),
                lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), a0 = _mm512_set1_epi64((long long)a),
                a1 = _mm512_srli_epi64(a0, 32);

  for (int64_t tile = 0; tile < n; tile++, block += TRS_TILE_BLOCKS, out += TRS_TILE) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    __m512i c[TRS_SETS_512][4];

    for (int s = 0; s < TRS_SETS_512; s++) {
      const uint64_t first = block + 8 * (uint64_t)s;

      c[s][0] = _mm512_add_epi64(_mm512_set1_epi64((long long)first), lanes);
      c[s][1] = _mm512_srli_epi64(c[s][0], 32);
      c[s][2] = a0;
      c[s][3] = a1;
    }
    for (int round = 0; round < TRS_PHILOX_ROUNDS; round++) {
      const __m512i key0 = _mm512_set1_epi64(k0), key1 = _mm512_set1_epi64(k1);

      for (int s = 0; s < TRS_SETS_512; s++) {
        const __m512i p0 = _mm512_mul_epu32(m0, c[s][0]), p1 = _mm512_mul_epu32(m1, c[s][2]);

        /* 0x96 is the exclusive or of the three operands */
        c[s][0] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c[s][1], key0, 0x96);
        c[s][1] = p1;
        c[s][2] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c[s][3], key1, 0x96);
        c[s][3] = p0;
      }
      k0 += TRS_PHILOX_W0;
      k1 += TRS_PHILOX_W1;
    }
    for (int s = 0; s < TRS_SETS_512; s++)
      store_512(c[s], _mm512_set1_ps(lo), _mm512_set1_ps(width), out + (ptrdiff_t)32 * s);
  }
}

/* --- AVX2 --- */

static int has_avx2(void)
{
  return __builtin_cpu_supports("avx2");
}

enum { TRS_SETS_256 = 2 }; /* more sets do not fit into 16 registers */

/* Store the numbers of 4 blocks. */
__attribute__((target("avx2"))) static inline void store_256(const __m256i c[4], __m256 lo, __m256 width,
                                                             float *out)
{
  const __m256i words01 = _mm256_blend_epi32(c[0], _mm256_slli_epi64(c[1], 32), 0xAA),
                words23 = _mm256_blend_epi32(c[2], _mm256_slli_epi64(c[3], 32), 0xAA),
                even = _mm256_unpacklo_epi64(words01, words23), /* blocks 0 and 2 */
      odd = _mm256_unpackhi_epi64(words01, words23);            /* blocks 1 and 3 */
  const __m256i half[2] = {_mm256_permute2x128_si256(even, odd, 0x20),
                           _mm256_permute2x128_si256(even, odd, 0x31)};

  for (int h = 0; h < 2; h++) {
    const __m256 fraction = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(half[h], 8)),
                                          _mm256_set1_ps(0x1p-24f));

    _mm256_storeu_ps(out + (ptrdiff_t)8 * h, _mm256_add_ps(lo, _mm256_mul_ps(width, fraction)));
  }
}

__attribute__((target("avx2"))) static void fill_avx2(uint64_t key, uint64_t a, uint64_t block, int64_t n,
                                                      float lo, float width, float *out)
{
  const __m256i m0 = _mm256_set1_epi64x(TRS_PHILOX_M0), m1 = _mm256_set1_epi64x(TRS_PHILOX_M1),
                lanes = _mm256_set_epi64x(3, 2, 1, 0), a0 = _mm256_set1_epi64x((long long)a),
                a1 = _mm256_srli_epi64(a0, 32);
  const int64_t n_parts = n * (TRS_TILE_BLOCKS / (4 * TRS_SETS_256));

  for (int64_t part = 0; part < n_parts; part++) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    __m256i c[TRS_SETS_256][4];

    for (int s = 0; s < TRS_SETS_256; s++, block += 4) {
      c[s][0] = _mm256_add_epi64(_mm256_set1_epi64x((long long)block), lanes);
      c[s][1] = _mm256_srli_epi64(c[s][0], 32);
      c[s][2] = a0;
      c[s][3] = a1;
    }
    for (int round = 0; round < TRS_PHILOX_ROUNDS; round++) {
      const __m256i key0 = _mm256_set1_epi64x(k0), key1 = _mm256_set1_epi64x(k1);

      for (int s = 0; s < TRS_SETS_256; s++) {
        const __m256i p0 = _mm256_mul_epu32(m0, c[s][0]), p1 = _mm256_mul_epu32(m1, c[s][2]);

        c[s][0] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(c[s][1], key0));
        c[s][1] = p1;
        c[s][2] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(c[s][3], key1));
        c[s][3] = p0;
      }
      k0 += TRS_PHILOX_W0;
      k1 += TRS_PHILOX_W1;
    }
    for (int s = 0; s < TRS_SETS_256; s++, out += 16)
      store_256(c[s], _mm256_set1_ps(lo), _mm256_set1_ps(width), out);
  }
}
#endif

const TrsUniformTiles trs_uniform_tiles[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, fill_avx512},
    {"avx2", has_avx2, fill_avx2},
#endif
    {"portable", always, fill_portable}};

const TrsUniformTiles *TrsUniformTilesBest(const char *limit)
{
  const TrsUniformTiles *tiles = trs_uniform_tiles, *const last = tiles + TRS_N_UNIFORM_TILES - 1;

  while (limit && tiles < last && strcmp(tiles->name, limit) != 0) tiles++;
  while (!tiles->available()) tiles++;
  return tiles;
}
