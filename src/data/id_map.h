/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Raw 64-bit ids become rows of a table (option id_map of tables). Internal to data/. No MPI, no
  allocation.
*/
#pragma once

#include "spec/table_config.h"

/* The rule that turns the ids of one feature into rows. TrsIdMapMake() makes it. */
typedef struct {
  TrsIdMapKind kind;
  PetscBool is_unsigned; /* ids are uint64, otherwise int64 */
  uint64_t rows;         /* R, at least 1 */
  uint64_t inverse;      /* floor(2^(64 + shift) / R), at most 2^64 - 1 */
  int shift;             /* floor(log2(R)) */
} TrsIdMap;

TrsIdMap TrsIdMapMake(TrsIdMapKind kind, int64_t rows, PetscBool is_unsigned);

/*
  TrsIdMapApply - Replace n ids by their rows, 0 to R - 1. With kind none nothing happens.

  modulo: the remainder that is not negative, as in torch.remainder
  hash:   murmur_hash3_2x64(id, 0, 0) modulo R, equal to FBGEMM's zero_collision_hash with max_probe
          1. Negative ids are hashed as their 64 bits
*/
void TrsIdMapApply(const TrsIdMap *map, int64_t n, int64_t *ids);

/* TrsIdMapApply() with instructions that every processor has. */
void TrsIdMapApplyPortably(const TrsIdMap *map, int64_t n, int64_t *ids);
