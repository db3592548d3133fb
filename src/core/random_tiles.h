/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Uniform numbers are computed in tiles, with one function for each instruction set. All functions
  give the same bits. Internal to core/.
*/
#pragma once

#include <stdint.h>

/* Philox blocks and numbers of a tile */
enum { TRS_TILE_BLOCKS = 32, TRS_TILE = 4 * TRS_TILE_BLOCKS };

typedef struct {
  const char *name;
  int (*available)(void); /* true if this processor can run it */
  /* Fill n tiles. Number 4 * i + w is lo + width * f, where f is word w of block `block` + i as
     a fraction (TrsUniform24()). */
  void (*fill)(uint64_t key, uint64_t a, uint64_t block, int64_t n, float lo, float width, float *out);
} TrsUniformTiles;

/*
  The list begins with the best instruction set and ends with the portable one, which every
  processor has.
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
  The best entry that the processor supports and that `limit`, a name of the list, allows. NULL
  allows all entries. An unknown name gives the last entry.
*/
const TrsUniformTiles *TrsUniformTilesBest(const char *limit);
