/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Choose payload, grid and update for a table, from one table of choices, and refuse combinations
  that do not work. Internal to shard/.
*/
#pragma once

#include "shard/sharding.h"

typedef struct {
  const TrsShardingOps *payload; /* NULL: no payload fits */
  TrsGrid grid;
  const TrsUpdateOps *update;
} TrsShardingChoice;

/*
  TrsShardingChoose - Choose payload, grid and update for table t of the context.

  Not collective; the result is the same on all ranks.

  Errors: OPTION if the options conflict with the table or its sharding type
*/
PetscErrorCode TrsShardingChoose(const TrsShardingContext *context, int t, TrsShardingChoice *choice);
