/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stable sorting and grouping of rows with their positions. A 64-bit key holds both: row <<
  position_bits | position. Internal to cpu/.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* Number of bits needed for 0..largest. */
static inline int TrsBitsFor(uint64_t largest)
{
  return largest ? 64 - __builtin_clzll(largest) : 0;
}

/*
  Sort key[n] by bits [low_bit, high_bit) with a least-significant-digit radix sort. scratch must
  have room for n keys. Equal rows keep their order. Returns the array with the sorted keys, key or
  scratch.
*/
uint64_t *TrsRowSort(int64_t n, int low_bit, int high_bit, uint64_t *key, uint64_t *scratch);

typedef enum {
  TRS_ROWS_TOGETHER, /* any order of rows; it may depend on the number of threads */
  TRS_ROWS_LISTED,   /* an order that depends only on the keys and the number of rows */
  TRS_ROWS_SORTED
} TrsRowOrder;

/*
  Group the keys by row in key [n]. Keys of equal rows keep their order. Unless the rows must be
  sorted, rows with a single key may come first, in the order of their keys: if many of the table's
  rows have a key, these keys need no sort, and their gradients are read in order of positions.

  rows must exceed the largest row. scratch and seen must have room for n entries.
*/
void TrsRowGroup(int64_t n, int low_bit, int64_t rows, TrsRowOrder order, uint64_t *key, uint64_t *scratch,
                 uint32_t *seen);
