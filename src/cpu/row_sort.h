/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Rows with the positions they came from: stable sorts, and lists by row. A 64-bit key holds both:
  row << position_bits | position. Internal to compute/.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* Number of bits that hold 0..largest. */
static inline int TrsBitsFor(uint64_t largest)
{
  return largest ? 64 - __builtin_clzll(largest) : 0;
}

/*
  Sort key[n] by its bits [low_bit, high_bit) with a least-significant-digit radix sort. scratch
  [n]. Equal rows keep their order. Returns the array that holds the sorted keys: key or scratch.
*/
uint64_t *TrsRowSort(int64_t n, int low_bit, int high_bit, uint64_t *key, uint64_t *scratch);

typedef enum {
  TRS_ROWS_TOGETHER, /* in any order of rows; threads may share the work and change the order */
  TRS_ROWS_LISTED,   /* in an order that the keys' rows, their order and the number of rows give */
  TRS_ROWS_SORTED
} TrsRowOrder;

/*
  Bring the keys of each row together in key [n]. Equal rows keep their order. Unless they are
  sorted, rows with a single key may come first, in the order of their keys: if many of the table's
  rows have a key, those need no sort, and what belongs to their positions is read in order of
  positions.

  rows: more than the largest row. scratch [n]. seen: scratch [n].
*/
void TrsRowGroup(int64_t n, int low_bit, int64_t rows, TrsRowOrder order, uint64_t *key, uint64_t *scratch,
                 uint32_t *seen);
