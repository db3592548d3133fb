/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/id_map.h"

#if defined(__x86_64__)
  #include <immintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

TrsIdMap TrsIdMapMake(const TrsIdMapRule *rule)
{
  return (TrsIdMap){.kind = rule->kind,
                    .is_unsigned = rule->is_unsigned,
                    .rows = TrsDivisorMake(rule->rows),
                    .collisions = TrsDivisorMake(PetscMax(rule->collisions, 1))};
}

ALWAYS_INLINE void map_ids(const TrsIdMap *map, TrsIdMapKind kind, int64_t n, int64_t *ids)
{
  const TrsIdMap m = *map; /* a copy, so that the loop does not load the map again for each id */

  for (int64_t i = 0; i < n; i++) ids[i] = TrsIdMapRow(&m, kind, ids[i]);
}

/*
  TrsIdHash() for eight ids at a time. Vectors have no multiplication of 64 by 64 bits with a result
  of 128 bits, so its upper half is computed from multiplications of 32 bits.
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

/* TrsDivide() for eight numbers at a time. */
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

/* If the divisor is at least this, the quotient of a 64-bit number has at most 48 bits. */
  #define DIRECT 65536

/*
  Compute x modulo d for eight numbers at a time, with doubles. If d is small, 2^32 high + low is
  first reduced to (2^32 modulo d) high + low, so that the quotient is always at most 2^48. All
  roundings are downwards, and lose less than 2^-49 of the quotient. So the quotient is exact or too
  small by 1.
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

/* TrsIdMapRow() for eight ids at a time. */
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
  case TRS_ID_MAP_NONE:
  case TRS_ID_MAP_ZCH:
  case TRS_ID_MAP_DYNAMIC: break;
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
  case TRS_ID_MAP_NONE:
  case TRS_ID_MAP_ZCH:
  case TRS_ID_MAP_DYNAMIC: break;
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
