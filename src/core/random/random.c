/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/random/random.h"

#include "core/random/philox.h"
#include "core/random/random_tiles.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

void TrsRandom(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t b, uint32_t out[4])
{
  TrsPhilox(TrsPhiloxKey(seed, purpose), a, b, out);
}

static const TrsUniformTiles *tiles_in_use; /* NULL for the best that the processor has */

void TrsRandomSetIsa(const char *limit)
{
  tiles_in_use = TrsUniformTilesBest(limit);
}

void TrsRandomUniformFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                          float lo, float hi, float *out)
{
  const TrsUniformTiles *tiles = tiles_in_use ? tiles_in_use : TrsUniformTilesBest(NULL);
  const uint64_t key = TrsPhiloxKey(seed, purpose);
  float tile[TRS_TILE];
  int64_t done = 0;

  while (done < n) {
    const uint64_t element = first + (uint64_t)done;
    /* offset of the element in its tile */
    const int64_t skip = (int64_t)(element % TRS_TILE);
    int64_t wanted = n - done < TRS_TILE - skip ? n - done : TRS_TILE - skip;

    if (wanted == TRS_TILE) {
      wanted = (n - done) / TRS_TILE * TRS_TILE;
      tiles->fill(key, a, element / 4, wanted / TRS_TILE, lo, hi - lo, out + done);
    } else {
      tiles->fill(key, a, (element - (uint64_t)skip) / 4, 1, lo, hi - lo, tile);
      memcpy(out + done, tile + skip, (size_t)wanted * sizeof(*out));
    }
    done += wanted;
  }
}

void TrsRandomNormalFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                         float mean, float std, float *out)
{
  uint64_t key = TrsPhiloxKey(seed, purpose);
  float normal[4] = {0};

  for (int64_t i = 0; i < n; i++) {
    uint64_t element = first + (uint64_t)i;

    if (i == 0 || element % 4 == 0) {
      uint32_t bits[4];

      TrsPhilox(key, a, element / 4, bits);
      for (int pair = 0; pair < 4; pair += 2) {
        /* the argument of log is in (0, 1], so the result is finite */
        double radius = sqrt(-2.0 * log(((double)bits[pair] + 1.0) * 0x1p-32));
        double angle = 6.283185307179586 * ((double)bits[pair + 1] * 0x1p-32);

        normal[pair] = (float)((double)mean + (double)std * radius * cos(angle));
        normal[pair + 1] = (float)((double)mean + (double)std * radius * sin(angle));
      }
    }
    out[i] = normal[element % 4];
  }
}

void TrsRandomFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                   const TrsRandomLaw *law, float *out)
{
  switch (law->kind) {
  case TRS_LAW_UNIFORM: TrsRandomUniformFill(seed, purpose, a, first, n, law->low, law->high, out); break;
  case TRS_LAW_NORMAL: TrsRandomNormalFill(seed, purpose, a, first, n, law->mean, law->std, out); break;
  }
}

uint64_t TrsNameHash(const char *name)
{
  return XXH3_64bits(name, strlen(name));
}
