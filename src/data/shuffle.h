/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The shuffle: a permutation of [0, n) for each (seed, epoch). Each index is computed separately, so
  the shuffle needs no memory, works on any rank in any order, and does not depend on the number of
  ranks.

  Source: Feistel network over the smallest even number of bits that can represent n, with cycle
          walking back into [0, n) (Black and Rogaway, Ciphers with arbitrary finite domains, 2002);
          round keys from the counter-based generator
*/
#pragma once

#include <stdint.h>

enum { TRS_SHUFFLE_ROUNDS = 6 };

typedef struct {
  int64_t n;
  int half_bits;
  uint64_t key[TRS_SHUFFLE_ROUNDS];
} TrsShuffle;

/* Begin a permutation of n >= 1 samples. Not collective, any thread. */
void TrsShuffleInit(TrsShuffle *shuffle, uint64_t seed, int64_t epoch, int64_t n);

/* Return the sample at index i of the permutation, 0 <= i < n. */
int64_t TrsShuffleAt(const TrsShuffle *shuffle, int64_t i);
