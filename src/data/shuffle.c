/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/shuffle.h"

#include "core/random/random.h"

void TrsShuffleInit(TrsShuffle *shuffle, uint64_t seed, int64_t epoch, int64_t n)
{
  int bits = 2;

  while (bits < 62 && ((int64_t)1 << bits) < n) bits += 2;
  shuffle->n = n;
  shuffle->half_bits = bits / 2;
  for (int round = 0; round < TRS_SHUFFLE_ROUNDS; round++) {
    uint32_t word[4];

    TrsRandom(seed, TRS_RANDOM_SHUFFLE, (uint64_t)epoch, (uint64_t)round, word);
    shuffle->key[round] = ((uint64_t)word[0] << 32) | word[1];
  }
}

/* The finaliser of splitmix64: every bit of the input changes all bits of the output. */
static uint64_t mix(uint64_t z)
{
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static uint64_t permute_bits(const TrsShuffle *shuffle, uint64_t x)
{
  uint64_t mask = ((uint64_t)1 << shuffle->half_bits) - 1;
  uint64_t left = x >> shuffle->half_bits, right = x & mask;

  for (int round = 0; round < TRS_SHUFFLE_ROUNDS; round++) {
    uint64_t next = left ^ (mix(right + shuffle->key[round]) & mask);

    left = right;
    right = next;
  }
  return left << shuffle->half_bits | right;
}

int64_t TrsShuffleAt(const TrsShuffle *shuffle, int64_t i)
{
  uint64_t x = (uint64_t)i;

  /* the network permutes at most 4 n numbers, so the loop has at most 4 rounds on average */
  do {
    x = permute_bits(shuffle, x);
  } while (x >= (uint64_t)shuffle->n);
  return (int64_t)x;
}
