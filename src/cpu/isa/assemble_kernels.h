/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Inner loops for making batches, compiled once for each instruction set. The files
  assemble_kernels_<isa>.c include assemble_kernels_template.h and are compiled with different
  flags. Each call runs on one thread. All instruction sets have the same results, bit for bit.
  Internal to cpu/.
*/
#pragma once

#include "compute/assemble.h"

#define INLINE static inline __attribute__((always_inline))

/*
  Number of samples whose bags are copied together. Their rows in the file stay in the first-level
  cache.
*/
enum { TRS_SAMPLE_TILE = 32 };

/* Return the index, in a tile, of a sample's number for a key. */
static inline int64_t TrsTilePlace(int key, int sample)
{
  return (int64_t)key * TRS_SAMPLE_TILE + sample;
}

typedef struct {
  /* Compute to[c * TRS_SAMPLE_TILE + r] = row[r][c], for n_rows <= TRS_SAMPLE_TILE rows of
     n_cols numbers. */
  void (*transpose)(int n_rows, int n_cols, const int32_t *const *row, int32_t *to);
  /*
    Copy n_bags <= TRS_SAMPLE_TILE bags to `to`, without gaps. Bag i has lengths[i] ids, beginning
    at from[at[i]]. Ids that are bad by the feature's `rows` become 0. Returns true if an id was
    bad.
  */
  int (*place_narrow)(int n_bags, const int32_t *lengths, const int64_t *at, const int32_t *from,
                      int64_t rows, int64_t *to);
  int (*place_wide)(int n_bags, const int32_t *lengths, const int64_t *at, const int64_t *from, int64_t rows,
                    int64_t *to);
  void (*place_weights)(int n_bags, const int32_t *lengths, const int64_t *at, const float *from, float *to);
} TrsAssembleKernels;

extern const TrsAssembleKernels trs_assemble_kernels_portable;
#if defined(__x86_64__)
extern const TrsAssembleKernels trs_assemble_kernels_avx2;
extern const TrsAssembleKernels trs_assemble_kernels_avx512;
#endif
