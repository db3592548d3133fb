/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Hash of a bag: the sum of one term for each id, so the order of adding does not matter. Two
  different bags with one id each never have the same hash, if both are unweighted or have ids below
  2^32. Internal to cpu/ and gpu/.
*/
#pragma once

#include "core/random/philox.h"

/*
  Return the term of the id at position `place` in its bag. weight_bits has the bits of the id's
  weight, or 0.
*/
TRS_HOST_DEVICE static inline uint64_t TrsBagHashTerm(int64_t place, int64_t id, uint32_t weight_bits)
{
  return TrsPhiloxKey((uint64_t)id ^ (uint64_t)weight_bits << 32, (uint32_t)place);
}
