/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stable sorting and grouping of rows with their positions. A 64-bit key has both: row <<
  position_bits | position. Internal to cpu/.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* Return the number of bits that are needed for 0 .. largest. */
static inline int TrsBitsFor(uint64_t largest)
{
  return largest ? 64 - __builtin_clzll(largest) : 0;
}

/*
  Sort key [n] by bits [low_bit, high_bit), with a radix sort that begins at the lowest digit.
  scratch must have space for n keys. Equal rows keep their order. Returns `key` or `scratch`,
  whichever has the sorted keys.
*/
uint64_t *TrsRowSort(int64_t n, int low_bit, int high_bit, uint64_t *key, uint64_t *scratch);

typedef enum {
  TRS_ROWS_TOGETHER, /* any order of rows; it may depend on the number of threads */
  TRS_ROWS_LISTED,   /* an order that depends only on the keys and the number of rows */
  TRS_ROWS_SORTED
} TrsRowOrder;

/*
  Group the keys by row in key [n]. Keys of equal rows keep their order. Unless the rows must be
  sorted, rows with a single key may come first, in the order of their positions. This is done if
  many of the table's rows have a key: these keys then need no sort, and their gradients are read in
  sequence.

  rows must be greater than every row. scratch and seen must have space for n entries.
*/
void TrsRowGroup(int64_t n, int low_bit, int64_t rows, TrsRowOrder order, uint64_t *key, uint64_t *scratch,
                 uint32_t *seen);
