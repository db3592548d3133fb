/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Counter-based random numbers (Philox4x32-10; Salmon et al., SC'11; Random123).

  A number is a pure function of (seed, purpose, a, b). It does not depend on the order of calls,
  the plan, the number of ranks or the device. `purpose` keeps streams apart. a and b identify the
  number: the table's hash and the element, the epoch and the sample, and so on.
*/
#pragma once

#include <stdint.h>

typedef enum {
  TRS_RANDOM_TABLE_INIT = 1, /* a: hash of the name, b: row * D + column of the whole table */
  TRS_RANDOM_DENSE_INIT,     /* a: hash of the name, b: element */
  TRS_RANDOM_SHUFFLE,        /* a: epoch, b: index */
  TRS_RANDOM_ROUNDING,       /* compute/half.h: not Philox, whose rounds take too long */
  TRS_RANDOM_TEST,
  TRS_RANDOM_DROPOUT,   /* seed: mixed with the layer's hash; a: step, b: sample and columns */
  TRS_RANDOM_NEGATIVES, /* a: step, b: sample of the global batch */
  TRS_RANDOM_GIVEN_ROW  /* a: hash of table, raw id and times given; b: column */
} TrsRandomPurpose;

/* 128 random bits. */
void TrsRandom(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t b, uint32_t out[4]);

/* A uniform number in [0, 1) with 24 bits, from one 32-bit word. */
static inline float TrsUniform24(uint32_t bits)
{
  return (float)(bits >> 8) * 0x1p-24f;
}

/*
  n uniform numbers in [lo, hi] for elements first .. first + n - 1 of tensor `a`. The value of
  element i depends only on i: four elements share a Philox block, and element i is word i % 4 of
  block i / 4. Not collective.
*/
void TrsRandomUniformFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                          float lo, float hi, float *out);

/*
  Limit later fills to an instruction set ("avx512", "avx2", "portable"). NULL allows the best. The
  numbers stay bit-equal. Call this before other threads start.
*/
void TrsRandomSetIsa(const char *limit);

/*
  n normal numbers, addressed like the uniform ones (Box-Muller on a block's words, in double).
*/
void TrsRandomNormalFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                         float mean, float std, float *out);

/* The law that random numbers follow. A constant is a uniform law with equal bounds. */
typedef enum { TRS_LAW_UNIFORM, TRS_LAW_NORMAL } TrsLawKind;
typedef struct {
  TrsLawKind kind;
  float low, high; /* uniform */
  float mean, std; /* normal */
} TrsRandomLaw;

/* Call TrsRandomUniformFill() or TrsRandomNormalFill(), depending on the law. */
void TrsRandomFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                   const TrsRandomLaw *law, float *out);

/* 64-bit hash of a name (xxh3). A tensor uses it as `a`. */
uint64_t TrsNameHash(const char *name);
