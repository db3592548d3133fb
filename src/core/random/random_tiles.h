/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Uniform numbers, computed in tiles. Each instruction set has a function of its own; all have the
  same results, bit for bit. Internal to core/.
*/
#pragma once

#include <stdint.h>

/* Philox blocks of a tile, and numbers of a tile. */
enum { TRS_TILE_BLOCKS = 32, TRS_TILE = 4 * TRS_TILE_BLOCKS };

typedef struct {
  const char *name;
  int (*available)(void); /* returns true if this processor has the instruction set */
  /* Fill n tiles. Number 4 * i + w is lo + width * f, where f is word w of block `block` + i as
     a fraction (TrsUniform24()). */
  void (*fill)(uint64_t key, uint64_t a, uint64_t block, int64_t n, float lo, float width, float *out);
} TrsUniformTiles;

/*
  The functions of all instruction sets, beginning with the best. The last is the portable one,
  which every processor has.
*/
extern const TrsUniformTiles trs_uniform_tiles[];
enum {
#if defined(__x86_64__)
  TRS_N_UNIFORM_TILES = 3
#else
  TRS_N_UNIFORM_TILES = 1
#endif
};

/*
  Find the best entry that the processor has and that `limit`, a name in the list, allows. NULL
  allows all entries. If the name is unknown, the last entry is returned.
*/
const TrsUniformTiles *TrsUniformTilesBest(const char *limit);
