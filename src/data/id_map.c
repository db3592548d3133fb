/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/id_map.h"

#if defined(__x86_64__)
  #include <immintrin.h>
#endif

__extension__ typedef unsigned __int128 TrsWide;
#define ALWAYS_INLINE static inline __attribute__((always_inline))

static TrsDivisor divisor_of(int64_t value)
{
  TrsDivisor d = {.value = (uint64_t)value,
                  .inverse = UINT64_MAX,
                  .shift = 63 - __builtin_clzll((uint64_t)value),
                  .fold = ((uint64_t)1 << 32) % (uint64_t)value};

  /* Both roundings together are off by little more than 2^-52. */
  d.below = (1.0 / (double)value) * (1.0 - 0x1p-51);
  if (value & (value - 1)) d.inverse = (uint64_t)(((TrsWide)1 << (64 + d.shift)) / d.value);
  return d;
}

TrsIdMap TrsIdMapMake(const TrsIdMapRule *rule, PetscBool is_unsigned)
{
  return (TrsIdMap){.kind = rule->kind,
                    .is_unsigned = is_unsigned,
                    .rows = divisor_of(rule->rows),
                    .collisions = divisor_of(PetscMax(rule->collisions, 1))};
}

/*
  x / d or x modulo d by two multiplications (Barrett, CRYPTO 1986). The quotient's estimate is
  short by less than x / 2^(64 + shift) < 1 before it is rounded down, so it is right or one too
  small.
*/
ALWAYS_INLINE uint64_t divide(uint64_t x, TrsDivisor d, PetscBool remainder)
{
  const uint64_t quotient = (uint64_t)((TrsWide)x * d.inverse >> 64) >> d.shift;
  const uint64_t rest = x - quotient * d.value;
  const PetscBool is_short = (PetscBool)(rest >= d.value);

  return remainder ? rest - (is_short ? d.value : 0) : quotient + is_short;
}

ALWAYS_INLINE uint64_t rotate(uint64_t x, int bits)
{
  return x << bits | x >> (64 - bits);
}

/* The last step of MurmurHash3 (Appleby). */
ALWAYS_INLINE uint64_t mix(uint64_t x)
{
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

/*
  The exclusive or of both halves of MurmurHash3_x64_128 of the 16 bytes (id, 0) with seed 0. The
  second word is 0, so its half starts as 0.
*/
ALWAYS_INLINE uint64_t hash_of(uint64_t id)
{
  uint64_t a = rotate(id * 0x87c37b91114253d5u, 31) * 0x4cf5ad432745937fu, b;

  a = rotate(a, 27) * 5 + 0x52dce729u;
  b = a * 5 + 0x38495ab5u;
  a ^= 16;
  b ^= 16;
  a += b;
  b += a;
  a = mix(a);
  b = mix(b);
  a += b;
  return a ^ (b + a);
}

/* The row of an id. A negative id gives R - 1 less the remainder of its complement, -id - 1. */
ALWAYS_INLINE int64_t row_of(const TrsIdMap *map, TrsIdMapKind kind, int64_t id)
{
  const PetscBool hash = (PetscBool)(kind == TRS_ID_MAP_HASH);
  const uint64_t flip = hash || map->is_unsigned ? 0 : (uint64_t)(id >> 63);
  const uint64_t x = hash ? hash_of((uint64_t)id) : (uint64_t)id ^ flip;
  const uint64_t row = (divide(x, map->rows, PETSC_TRUE) ^ flip) + (map->rows.value & flip);

  if (kind != TRS_ID_MAP_QUOTIENT && kind != TRS_ID_MAP_REMAINDER) return (int64_t)row;
  return (int64_t)divide(row, map->collisions, (PetscBool)(kind == TRS_ID_MAP_REMAINDER));
}

ALWAYS_INLINE void map_ids(const TrsIdMap *map, TrsIdMapKind kind, int64_t n, int64_t *ids)
{
  const TrsIdMap m = *map; /* a copy, so that the loop does not read the map again */

  for (int64_t i = 0; i < n; i++) ids[i] = row_of(&m, kind, ids[i]);
}

/*
  hash_of() for eight ids at a time, without products of 64 by 64 bits, which vectors do not have.
*/
#if defined(__x86_64__)
  #define WIDE __attribute__((target("avx512f,avx512dq")))

WIDE ALWAYS_INLINE __m512i upper_half(__m512i x, __m512i y)
{
  const __m512i x1 = _mm512_srli_epi64(x, 32), y1 = _mm512_srli_epi64(y, 32);
  const __m512i a = _mm512_add_epi64(_mm512_mul_epu32(x1, y), _mm512_srli_epi64(_mm512_mul_epu32(x, y), 32));
  const __m512i low = _mm512_and_epi64(a, _mm512_set1_epi64(UINT32_MAX));
  const __m512i b = _mm512_add_epi64(_mm512_mul_epu32(x, y1), low);
  const __m512i upper = _mm512_add_epi64(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));

  return _mm512_add_epi64(_mm512_mul_epu32(x1, y1), upper);
}

WIDE ALWAYS_INLINE __m512i times(__m512i x, uint64_t y)
{
  return _mm512_mullo_epi64(x, _mm512_set1_epi64((long long)y));
}

WIDE ALWAYS_INLINE __m512i plus(__m512i x, long long y)
{
  return _mm512_add_epi64(x, _mm512_set1_epi64(y));
}

WIDE ALWAYS_INLINE __m512i mix_wide(__m512i x)
{
  x = times(_mm512_xor_epi64(x, _mm512_srli_epi64(x, 33)), 0xff51afd7ed558ccdu);
  x = times(_mm512_xor_epi64(x, _mm512_srli_epi64(x, 33)), 0xc4ceb9fe1a85ec53u);
  return _mm512_xor_epi64(x, _mm512_srli_epi64(x, 33));
}

WIDE ALWAYS_INLINE __m512i times_5(__m512i x)
{
  return _mm512_add_epi64(x, _mm512_slli_epi64(x, 2));
}

WIDE ALWAYS_INLINE __m512i hash_wide(__m512i id)
{
  const __m512i sixteen = _mm512_set1_epi64(16);
  __m512i a = times(_mm512_rol_epi64(times(id, 0x87c37b91114253d5u), 31), 0x4cf5ad432745937fu), b;

  a = plus(times_5(_mm512_rol_epi64(a, 27)), 0x52dce729);
  b = _mm512_xor_epi64(plus(times_5(a), 0x38495ab5), sixteen);
  a = _mm512_add_epi64(_mm512_xor_epi64(a, sixteen), b);
  b = mix_wide(_mm512_add_epi64(b, a));
  a = _mm512_add_epi64(mix_wide(a), b);
  return _mm512_xor_epi64(a, _mm512_add_epi64(b, a));
}

/* divide() for eight numbers at a time. */
WIDE ALWAYS_INLINE __m512i divide_wide(__m512i x, TrsDivisor d, PetscBool remainder)
{
  const __m512i value = _mm512_set1_epi64((long long)d.value);
  const __m512i quotient = _mm512_srl_epi64(upper_half(x, _mm512_set1_epi64((long long)d.inverse)),
                                            _mm_cvtsi32_si128(d.shift));
  const __m512i rest = _mm512_sub_epi64(x, _mm512_mullo_epi64(quotient, value));
  const __mmask8 is_short = _mm512_cmpge_epu64_mask(rest, value);

  return remainder ? _mm512_mask_sub_epi64(rest, is_short, rest, value)
                   : _mm512_mask_add_epi64(quotient, is_short, quotient, _mm512_set1_epi64(1));
}

/* The divisors from which on the quotient of 64 bits has no more than 48. */
  #define DIRECT 65536

/*
  x modulo d for eight numbers at a time, by way of doubles. For a small d, 2^32 high + low is
  folded to (2^32 modulo d) high + low first, so that the quotient is at most 2^48 in any case. All
  roundings are downwards. They lose less than 2^-49 of the quotient, which is right or one too
  small.
*/
WIDE ALWAYS_INLINE __m512i remainder_wide(__m512i x, TrsDivisor d)
{
  const __m512i value = _mm512_set1_epi64((long long)d.value);
  __m512i quotient, rest;

  if (d.value < DIRECT) {
    const __m512i high = _mm512_srli_epi64(x, 32), low = _mm512_and_epi64(x, _mm512_set1_epi64(UINT32_MAX));

    x = _mm512_add_epi64(_mm512_mul_epu32(high, _mm512_set1_epi64((long long)d.fold)), low);
  }
  quotient = _mm512_cvttpd_epu64(
      _mm512_mul_round_pd(_mm512_cvt_roundepu64_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
                          _mm512_set1_pd(d.below), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
  rest = _mm512_sub_epi64(x, _mm512_mullo_epi64(quotient, value));
  return _mm512_min_epu64(rest, _mm512_sub_epi64(rest, value));
}

/* row_of() for eight ids at a time. */
WIDE ALWAYS_INLINE void map_wide(const TrsIdMap *map, TrsIdMapKind kind, int64_t n, int64_t *ids)
{
  const __m512i rows = _mm512_set1_epi64((long long)map->rows.value);
  const PetscBool hash = (PetscBool)(kind == TRS_ID_MAP_HASH),
                  split = (PetscBool)(kind == TRS_ID_MAP_QUOTIENT || kind == TRS_ID_MAP_REMAINDER);
  const PetscBool has_sign = (PetscBool)(!hash && !map->is_unsigned);

  for (int64_t i = 0; i < n; i += 8) {
    const __mmask8 there = n - i < 8 ? (__mmask8)((1 << (n - i)) - 1) : 0xff;
    const __m512i id = _mm512_maskz_loadu_epi64(there, ids + i);
    const __m512i flip = has_sign ? _mm512_srai_epi64(id, 63) : _mm512_setzero_si512();
    const __m512i x = hash ? hash_wide(id) : _mm512_xor_epi64(id, flip);
    __m512i row = remainder_wide(x, map->rows);

    row = _mm512_add_epi64(_mm512_xor_epi64(row, flip), _mm512_and_epi64(rows, flip));
    if (split) row = divide_wide(row, map->collisions, (PetscBool)(kind == TRS_ID_MAP_REMAINDER));
    _mm512_mask_storeu_epi64(ids + i, there, row);
  }
}

WIDE static void map_ids_wide(const TrsIdMap *map, int64_t n, int64_t *ids)
{
  switch (map->kind) {
  case TRS_ID_MAP_NONE: break;
  case TRS_ID_MAP_MODULO: map_wide(map, TRS_ID_MAP_MODULO, n, ids); break;
  case TRS_ID_MAP_HASH: map_wide(map, TRS_ID_MAP_HASH, n, ids); break;
  case TRS_ID_MAP_QUOTIENT: map_wide(map, TRS_ID_MAP_QUOTIENT, n, ids); break;
  case TRS_ID_MAP_REMAINDER: map_wide(map, TRS_ID_MAP_REMAINDER, n, ids); break;
  }
}

static PetscBool has_wide(void)
{
  return (PetscBool)(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"));
}
#else
  #define map_ids_wide TrsIdMapApplyPortably

static PetscBool has_wide(void)
{
  return PETSC_FALSE;
}
#endif

void TrsIdMapApplyPortably(const TrsIdMap *map, int64_t n, int64_t *ids)
{
  switch (map->kind) {
  case TRS_ID_MAP_NONE: break;
  case TRS_ID_MAP_MODULO: map_ids(map, TRS_ID_MAP_MODULO, n, ids); break;
  case TRS_ID_MAP_HASH: map_ids(map, TRS_ID_MAP_HASH, n, ids); break;
  case TRS_ID_MAP_QUOTIENT: map_ids(map, TRS_ID_MAP_QUOTIENT, n, ids); break;
  case TRS_ID_MAP_REMAINDER: map_ids(map, TRS_ID_MAP_REMAINDER, n, ids); break;
  }
}

void TrsIdMapApply(const TrsIdMap *map, int64_t n, int64_t *ids)
{
  if (has_wide())
    map_ids_wide(map, n, ids);
  else
    TrsIdMapApplyPortably(map, n, ids);
}
