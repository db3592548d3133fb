/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Mapping of a raw 64-bit id to a row (table option id_map), on CPUs and GPUs. data/id_map.h makes
  the rule, and applies it to many ids.
*/
#pragma once

#include "core/random/philox.h"
#include "spec/vocabulary.h"

#include <petscsys.h>

__extension__ typedef unsigned __int128 TrsWide;

/* inlining lets a loop over ids of one kind skip the branches of all other kinds */
#define TRS_ALWAYS_INLINE TRS_HOST_DEVICE static inline __attribute__((always_inline))

/* A uint64 divisor, prepared so that a division needs only two multiplications. */
typedef struct {
  uint64_t value;   /* at least 1 */
  uint64_t inverse; /* floor(2^(64 + shift) / value), at most 2^64 - 1 */
  int shift;        /* floor(log2(value)) */
  uint64_t fold;    /* 2^32 modulo value */
  double below;     /* less than 1 / value; the difference is at most 2^-50 / value */
} TrsDivisor;

static inline TrsDivisor TrsDivisorMake(int64_t value)
{
  const int shift = 63 - __builtin_clzll((uint64_t)value);
  TrsDivisor d = {(uint64_t)value, UINT64_MAX, shift, ((uint64_t)1 << 32) % (uint64_t)value, 0};

  /* Both roundings together have a relative error of little more than 2^-52. */
  d.below = (1.0 / (double)value) * (1.0 - 0x1p-51);
  if (value & (value - 1)) d.inverse = (uint64_t)(((TrsWide)1 << (64 + shift)) / d.value);
  return d;
}

/* The rule that turns the ids of one feature into rows. TrsIdMapMake() makes it. */
typedef struct {
  TrsIdMapKind kind;
  PetscBool is_unsigned; /* true: ids are uint64; false: ids are int64 */
  TrsDivisor rows;       /* R, the number of rows */
  TrsDivisor collisions; /* m of the id maps quotient and remainder */
} TrsIdMap;

/*
  Return x / d, or x modulo d if `remainder` is set, by two multiplications (Barrett, CRYPTO 1986).
  Before rounding down, the estimated quotient is too small by less than x / 2^(64 + shift) < 1. So
  after rounding down it is exact or too small by 1.
*/
TRS_ALWAYS_INLINE uint64_t TrsDivide(uint64_t x, TrsDivisor d, PetscBool remainder)
{
  const uint64_t quotient = (uint64_t)((TrsWide)x * d.inverse >> 64) >> d.shift;
  const uint64_t rest = x - quotient * d.value;
  const PetscBool is_short = (PetscBool)(rest >= d.value);

  return remainder ? rest - (is_short ? d.value : 0) : quotient + is_short;
}

TRS_ALWAYS_INLINE uint64_t TrsRotate(uint64_t x, int bits)
{
  return x << bits | x >> (64 - bits);
}

/* The last step of MurmurHash3 (Appleby). */
TRS_ALWAYS_INLINE uint64_t TrsMix(uint64_t x)
{
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

/*
  The exclusive or of both halves of MurmurHash3_x64_128 over the 16 bytes (id, 0), with seed 0. The
  second word is 0, so the second half starts as 0.
*/
TRS_ALWAYS_INLINE uint64_t TrsIdHash(uint64_t id)
{
  uint64_t a = TrsRotate(id * 0x87c37b91114253d5u, 31) * 0x4cf5ad432745937fu, b;

  a = TrsRotate(a, 27) * 5 + 0x52dce729u;
  b = a * 5 + 0x38495ab5u;
  a ^= 16;
  b ^= 16;
  a += b;
  b += a;
  a = TrsMix(a);
  b = TrsMix(b);
  a += b;
  return a ^ (b + a);
}

/*
  Return the row of the id map `modulo`. A negative id has row R - 1 minus the remainder of -id - 1.
*/
TRS_ALWAYS_INLINE uint64_t TrsIdModulo(const TrsIdMap *map, int64_t id)
{
  const uint64_t flip = map->is_unsigned ? 0 : (uint64_t)(id >> 63);

  return (TrsDivide((uint64_t)id ^ flip, map->rows, PETSC_TRUE) ^ flip) + (map->rows.value & flip);
}

/* Return the row of an id. `kind` must be the map's kind. */
TRS_ALWAYS_INLINE int64_t TrsIdMapRow(const TrsIdMap *map, TrsIdMapKind kind, int64_t id)
{
  switch (kind) { /* no default, so that compilers report a kind without a case */
  case TRS_ID_MAP_NONE:
  case TRS_ID_MAP_ZCH:
  case TRS_ID_MAP_DYNAMIC: break; /* the rank that owns the id assigns a row to it */
  case TRS_ID_MAP_MODULO: return (int64_t)TrsIdModulo(map, id);
  case TRS_ID_MAP_HASH: return (int64_t)TrsDivide(TrsIdHash((uint64_t)id), map->rows, PETSC_TRUE);
  case TRS_ID_MAP_QUOTIENT: return (int64_t)TrsDivide(TrsIdModulo(map, id), map->collisions, PETSC_FALSE);
  case TRS_ID_MAP_REMAINDER: return (int64_t)TrsDivide(TrsIdModulo(map, id), map->collisions, PETSC_TRUE);
  }
  return id;
}

/*
  The buckets of ids, for a table that keeps the ids themselves. If block is not 0, the ids in [0, n
  * block) are divided into n equal parts, and ids outside go to the first or last bucket. If block
  is 0, the values of a hash are divided into n equal parts.
*/
typedef struct {
  TrsDivisor n;  /* number of buckets B; if its value is 0, the ids are rows */
  int64_t block; /* number of ids in a bucket */
  int64_t rows;  /* number of rows in a bucket */
} TrsIdBuckets;

TRS_ALWAYS_INLINE int64_t TrsIdBucket(const TrsIdBuckets *buckets, int64_t id)
{
  const int64_t last = (int64_t)buckets->n.value - 1;
  int64_t bucket;

  if (buckets->block == 0) return (int64_t)TrsDivide(TrsIdHash((uint64_t)id), buckets->n, PETSC_TRUE);
  bucket = id < 0 ? 0 : id / buckets->block;
  return bucket < last ? bucket : last;
}
