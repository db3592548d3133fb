/* SPDX-License-Identifier: BSD-3-Clause */
/* Uniform numbers by the tile, for each instruction set; the same bits from all. Internal to core/. */
#pragma once

#include <stdint.h>

enum { TRS_TILE_BLOCKS = 32, TRS_TILE = 4 * TRS_TILE_BLOCKS }; /* Philox blocks, and numbers, of a tile */

typedef struct {
  const char *name;
  int (*available)(void); /* on this processor */
  /* n tiles: number 4 * i + w is lo + width * word w of block `block` + i, as a fraction (TrsUniform24()). */
  void (*fill)(uint64_t key, uint64_t a, uint64_t block, int64_t n, float lo, float width, float *out);
} TrsUniformTiles;

/* The best first, ended by one that every processor has. */
extern const TrsUniformTiles trs_uniform_tiles[];
enum {
#if defined(__x86_64__)
  TRS_N_UNIFORM_TILES = 3
#else
  TRS_N_UNIFORM_TILES = 1
#endif
};

/* The best that the processor has and limit, a name of the list, allows; NULL: any; a name that is not there: the last. */
const TrsUniformTiles *TrsUniformTilesBest(const char *limit);
