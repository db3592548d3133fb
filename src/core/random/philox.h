/* SPDX-License-Identifier: BSD-3-Clause */
/*
  One block of Philox4x32-10, for kernels that need a random number for each element. This header
  uses no PETSc, because .cu files include it.

  Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC'11); equal to
          Random123's philox4x32
*/
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
  #define TRS_HOST_DEVICE __host__ __device__
#else
  #define TRS_HOST_DEVICE
#endif

/* M: multipliers of Philox; W: increments of its key from round to round */
#define TRS_PHILOX_M0     0xD2511F53u
#define TRS_PHILOX_M1     0xCD9E8D57u
#define TRS_PHILOX_W0     0x9E3779B9u
#define TRS_PHILOX_W1     0xBB67AE85u
#define TRS_PHILOX_ROUNDS 10

/*
  splitmix64's finaliser (Steele, Lea, Flood 2014): different inputs have different results, whose
  bits are independent.
*/
TRS_HOST_DEVICE static inline uint64_t TrsMix64(uint64_t z)
{
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/*
  Return the key of a stream of random numbers. Different seeds and purposes have different keys, so
  their streams do not overlap.
*/
TRS_HOST_DEVICE static inline uint64_t TrsPhiloxKey(uint64_t seed, uint32_t purpose)
{
  return TrsMix64(seed + 0x9E3779B97F4A7C15u * purpose);
}

/*
  Compute the 128 bits for counter (b, a) under a key: the counter's words are c = {b low, b high, a
  low, a high}.
*/
TRS_HOST_DEVICE static inline void TrsPhilox(uint64_t key, uint64_t a, uint64_t b, uint32_t out[4])
{
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c0 = (uint32_t)b, c1 = (uint32_t)(b >> 32), c2 = (uint32_t)a, c3 = (uint32_t)(a >> 32);

  for (int round = 0; round < TRS_PHILOX_ROUNDS; round++) {
    uint64_t p0 = (uint64_t)TRS_PHILOX_M0 * c0, p1 = (uint64_t)TRS_PHILOX_M1 * c2;

    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += TRS_PHILOX_W0;
    k1 += TRS_PHILOX_W1;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}
