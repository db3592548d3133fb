/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The choice of payload, grid and update for a table: one table of choices, and what is refused.
  Internal to shard/.
*/
#pragma once

#include "shard/sharding.h"

typedef struct {
  const TrsShardingOps *payload; /* NULL: there is none */
  TrsGrid grid;
  const TrsUpdateOps *update;
} TrsShardingChoice;

/*
  TrsShardingChoose - The choice for table t of the context.

  Not collective; the same on all ranks.
  Errors: OPTION where the options do not go with the table, or with its sharding type
*/
PetscErrorCode TrsShardingChoose(const TrsShardingContext *context, int t, TrsShardingChoice *choice);
