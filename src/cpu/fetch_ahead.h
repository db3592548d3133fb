/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Prefetch distances of lookups and updates, into the first-level cache. Internal to cpu/.

  Rows are scattered, so the processor cannot predict their addresses. It cannot predict the lines
  of a pooled result either, and a store that misses delays all later stores.
*/
#pragma once

#include <stdint.h>

/* Number of bags ahead for which the result's lines are fetched. */
enum { TRS_BAGS_AHEAD = 16 };

/* Number of ids ahead for which the second line of each pair of a row's lines is fetched. */
enum { TRS_IDS_NEAR = 8 };

/* Number of ids ahead for which rows are fetched. row_bytes: bytes of a row, stored or widened. */
static inline __attribute__((always_inline)) int64_t TrsIdsAhead(int row_bytes)
{
  const int64_t ids = 8192 / row_bytes;

  return ids > 48 ? 48 : ids < 10 ? 10 : ids;
}
