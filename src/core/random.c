/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/random.h"

#include "core/philox.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

/* The fills run at memory speed with wide integer multiplies, so they are built for three instruction sets, one taken at load time.
   (Sanitizers cannot run this early; clang 14 has no clones of C functions that inline others.) */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
  #define WIDE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
  #define WIDE_CLONES
#endif

enum { TRS_TILE_BLOCKS = 32, TRS_TILE = 4 * TRS_TILE_BLOCKS };

void TrsRandom(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t b, uint32_t out[4])
{
  TrsPhilox(TrsPhiloxKey(seed, purpose), a, b, out);
}

/* TrsPhilox() for a tile of blocks, word by word: loops over blocks become vector instructions, three times as fast as scalar ones
   (fewer blocks a tile and gcc 12 unrolls the loops instead). */
static inline __attribute__((always_inline)) void philox_tile(uint64_t key, uint64_t a, uint64_t block,
                                                              uint32_t c[4][TRS_TILE_BLOCKS])
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

static inline __attribute__((always_inline)) void uniform_tile(uint64_t key, uint64_t a, uint64_t block,
                                                               float lo, float width, float *out)
{
  uint32_t c[4][TRS_TILE_BLOCKS];

  philox_tile(key, a, block, c);
  for (int i = 0; i < TRS_TILE_BLOCKS; i++) {
    for (int w = 0; w < 4; w++) out[4 * i + w] = lo + width * ((float)(int32_t)(c[w][i] >> 8) * 0x1p-24f);
  }
}

WIDE_CLONES void TrsRandomUniformFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first,
                                      int64_t n, float lo, float hi, float *out)
{
  uint64_t key = TrsPhiloxKey(seed, purpose);
  float tile[TRS_TILE];
  int64_t done = 0;

  while (done < n) {
    uint64_t element = first + (uint64_t)done;
    int64_t skip = (int64_t)(element % TRS_TILE); /* of the tile that holds the element */
    int64_t wanted = n - done < TRS_TILE - skip ? n - done : TRS_TILE - skip;

    if (wanted == TRS_TILE) {
      uniform_tile(key, a, element / 4, lo, hi - lo, out + done);
    } else {
      uniform_tile(key, a, (element - (uint64_t)skip) / 4, lo, hi - lo, tile);
      memcpy(out + done, tile + skip, (size_t)wanted * sizeof(*out));
    }
    done += wanted;
  }
}

void TrsRandomNormalFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                         float std, float *out)
{
  uint64_t key = TrsPhiloxKey(seed, purpose);
  float normal[4] = {0};

  for (int64_t i = 0; i < n; i++) {
    uint64_t element = first + (uint64_t)i;

    if (i == 0 || element % 4 == 0) {
      uint32_t bits[4];

      TrsPhilox(key, a, element / 4, bits);
      for (int pair = 0; pair < 4; pair += 2) {
        double radius = sqrt(-2.0 *
                             log(((double)bits[pair] + 1.0) * 0x1p-32)); /* of (0, 1]: log stays finite */
        double angle = 6.283185307179586 * ((double)bits[pair + 1] * 0x1p-32);

        normal[pair] = (float)((double)std * radius * cos(angle));
        normal[pair + 1] = (float)((double)std * radius * sin(angle));
      }
    }
    out[i] = normal[element % 4];
  }
}

uint64_t TrsNameHash(const char *name)
{
  return XXH3_64bits(name, strlen(name));
}
