/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Counter-based random numbers (Philox4x32-10; Salmon et al., SC'11; Random123).

  A number depends only on (seed, purpose, a, b). It does not depend on the order of calls, the
  plan, the number of ranks or the device. Different purposes have different numbers. a and b
  identify a number of a purpose, for example by a table's hash and an element, or by an epoch and a
  sample.
*/
#pragma once

#include <stdint.h>

typedef enum {
  TRS_RANDOM_TABLE_INIT = 1, /* a: hash of the name, b: row * D + column in the whole table */
  TRS_RANDOM_DENSE_INIT,     /* a: hash of the name, b: element */
  TRS_RANDOM_SHUFFLE,        /* a: epoch, b: index */
  TRS_RANDOM_ROUNDING,       /* compute/half.h; not from Philox, whose rounds take too long */
  TRS_RANDOM_TEST,
  TRS_RANDOM_DROPOUT,   /* seed: mixed with the layer's hash; a: step, b: sample and columns */
  TRS_RANDOM_NEGATIVES, /* a: step, b: sample of the global batch */
  /* a: hash of the table, the raw id, and how often it was given a row; b: column */
  TRS_RANDOM_GIVEN_ROW
} TrsRandomPurpose;

/* Return 128 random bits. */
void TrsRandom(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t b, uint32_t out[4]);

/* Convert 24 bits of a word to a uniform number in [0, 1). */
static inline float TrsUniform24(uint32_t bits)
{
  return (float)(bits >> 8) * 0x1p-24f;
}

/*
  Fill with n uniform numbers in [lo, hi], for the elements first .. first + n - 1 of tensor `a`.
  The value of element i depends only on i: it comes from word i % 4 of the Philox block i / 4. Not
  collective.
*/
void TrsRandomUniformFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                          float lo, float hi, float *out);

/*
  Limit later fills to an instruction set ("avx512", "avx2", "portable"). If `limit` is NULL, the
  best is used. All have the same numbers, bit for bit. Must be called before other threads start.
*/
void TrsRandomSetIsa(const char *limit);

/*
  Fill with n normal numbers, for elements as in TrsRandomUniformFill(). They come from the words of
  a block by Box-Muller, in double.
*/
void TrsRandomNormalFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                         float mean, float std, float *out);

/* The distribution of random numbers. A constant is a uniform distribution with equal bounds. */
typedef enum { TRS_LAW_UNIFORM, TRS_LAW_NORMAL } TrsLawKind;
typedef struct {
  TrsLawKind kind;
  float low, high; /* for a uniform distribution */
  float mean, std; /* for a normal distribution */
} TrsRandomLaw;

/* Call TrsRandomUniformFill() or TrsRandomNormalFill(), as the distribution says. */
void TrsRandomFill(uint64_t seed, TrsRandomPurpose purpose, uint64_t a, uint64_t first, int64_t n,
                   const TrsRandomLaw *law, float *out);

/* Return a 64-bit hash of a name (xxh3), which is the number `a` of a tensor. */
uint64_t TrsNameHash(const char *name);
