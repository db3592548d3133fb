/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Raw 64-bit ids become rows of a table (option id_map of tables). No MPI, no
  allocation.
*/
#pragma once

#include "spec/table_config.h"

/* A divisor of uint64, as numbers by which two multiplications divide. */
typedef struct {
  uint64_t value;   /* at least 1 */
  uint64_t inverse; /* floor(2^(64 + shift) / value), at most 2^64 - 1 */
  int shift;        /* floor(log2(value)) */
  uint64_t fold;    /* 2^32 modulo value */
  double below;     /* less than 1 / value, by at most 2^-50 of it */
} TrsDivisor;

/* The rule that turns the ids of one feature into rows. TrsIdMapMake() makes it. */
typedef struct {
  TrsIdMapKind kind;
  PetscBool is_unsigned; /* ids are uint64, otherwise int64 */
  TrsDivisor rows;       /* R */
  TrsDivisor collisions; /* m of quotient and remainder */
} TrsIdMap;

TrsIdMap TrsIdMapMake(const TrsIdMapRule *rule, PetscBool is_unsigned);

/*
  TrsIdMapApply - Replace n ids by their rows, 0 to R - 1. With kind none nothing happens.

  modulo: the remainder that is not negative, as in torch.remainder
  hash:   murmur_hash3_2x64(id, 0, 0) modulo R, equal to FBGEMM's zero_collision_hash with max_probe
          1. Negative ids are hashed as their 64 bits
  quotient, remainder: those of the modulo's row by `collisions`
*/
void TrsIdMapApply(const TrsIdMap *map, int64_t n, int64_t *ids);

/* TrsIdMapApply() with instructions that every processor has. */
void TrsIdMapApplyPortably(const TrsIdMap *map, int64_t n, int64_t *ids);
