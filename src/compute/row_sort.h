/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stable sort of rows with the position they came from, both in one 64-bit key: row << position_bits | position. Internal to compute/.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* Bits that hold 0..largest. */
static inline int TrsBitsFor(uint64_t largest)
{
  return largest ? 64 - __builtin_clzll(largest) : 0;
}

/*
  Least-significant-digit radix sort of key[n] by its bits [low_bit, high_bit); scratch [n]. Equal rows keep their order.
  Returns where the sorted keys are: key or scratch.
*/
uint64_t *TrsRowSort(int64_t n, int low_bit, int high_bit, uint64_t *key, uint64_t *scratch);
