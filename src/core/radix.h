/* SPDX-License-Identifier: BSD-3-Clause */
/* Sorting and selecting 64-bit keys, for lists that are too long for qsort(). */
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  uint64_t key;
  int64_t value;
} TrsRadixPair;

/*
  Sort n pairs by key, ascending and stably, byte by byte from the lowest byte. Bytes that are equal
  in all keys are only counted, in one pass for all of them. spare [n] is scratch. Not collective.
*/
void TrsRadixSort(int64_t n, TrsRadixPair *pairs, TrsRadixPair *spare);

/*
  Find the m-th smallest of n keys, 1 <= m <= n, without moving the keys. A sample gives a bound for
  it, and of the keys below this bound it is found digit by digit. *below becomes the number of
  smaller keys. Not collective. Errors: MEMORY.
*/
PetscErrorCode TrsRadixSelect(int64_t n, const uint64_t *key, int64_t m, uint64_t *selected, int64_t *below);

/*
  Return a key for a signed integer. Sorting the keys sorts the integers in ascending order; sorting
  ~TrsRadixKey(x) sorts them in descending order.
*/
static inline uint64_t TrsRadixKey(int64_t x)
{
  return (uint64_t)x ^ (uint64_t)1 << 63;
}
