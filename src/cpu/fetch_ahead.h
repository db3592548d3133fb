/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Distances, in bags or ids, at which lookups and updates prefetch into the first-level cache.
  Internal to cpu/.

  Rows are scattered in memory, so the processor cannot predict their addresses. It also cannot
  predict the cache lines of a pooled result, and a store that misses the cache delays all later
  stores.
*/
#pragma once

#include <stdint.h>

/* Number of bags in advance with which the lines of a bag's result are prefetched. */
enum { TRS_BAGS_AHEAD = 16 };

/*
  Number of ids in advance with which the second line of each pair of a row's lines is prefetched.
*/
enum { TRS_IDS_NEAR = 8 };

/*
  Return the number of ids in advance with which rows are prefetched. row_bytes is the size of a
  row, as it is stored or as floats.
*/
static inline __attribute__((always_inline)) int64_t TrsIdsAhead(int row_bytes)
{
  const int64_t ids = 8192 / row_bytes;

  return ids > 48 ? 48 : ids < 10 ? 10 : ids;
}
