/* SPDX-License-Identifier: BSD-3-Clause */
/*
  How far ahead a lookup or an update fetches memory into the first-level cache. Internal to
  compute/.

  Rows lie apart, so the processor cannot foresee them. Neither can it the lines of a pooled result,
  and a store that misses holds up all that follow.
*/
#pragma once

#include <stdint.h>

/* Bags whose lines of the result are fetched ahead. */
enum { TRS_BAGS_AHEAD = 16 };

/* Ids ahead of which the second line of each pair of a row's lines is fetched. */
enum { TRS_IDS_NEAR = 8 };

/* The number of ids whose rows are fetched ahead, which are of so many bytes, or make as many. */
static inline __attribute__((always_inline)) int64_t TrsIdsAhead(int row_bytes)
{
  const int64_t ids = 8192 / row_bytes;

  return ids > 48 ? 48 : ids < 10 ? 10 : ids;
}
