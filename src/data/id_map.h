/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Mapping of raw 64-bit ids to a table's rows on the CPU (compute/id_map.h), without MPI and without
  allocations.
*/
#pragma once

#include "compute/id_map.h"
#include "spec/table_config.h"

TrsIdMap TrsIdMapMake(const TrsIdMapRule *rule);

/*
  TrsIdMapApply - Replace n ids by their rows, 0 to R - 1. The kind `none` leaves the ids unchanged.

  modulo: the non-negative remainder, as in torch.remainder
  hash:   murmur_hash3_2x64(id, 0, 0) modulo R, equal to FBGEMM's zero_collision_hash with max_probe
          1; negative ids are hashed as unsigned 64-bit numbers
  quotient, remainder: of the row by `modulo`, divided by `collisions`
*/
void TrsIdMapApply(const TrsIdMap *map, int64_t n, int64_t *ids);

/* Do the work of TrsIdMapApply() with instructions that every processor has. */
void TrsIdMapApplyPortably(const TrsIdMap *map, int64_t n, int64_t *ids);
