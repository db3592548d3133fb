/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The choice of payload, grid and update for a table: one table of choices, with the refusals beside
  it. Internal to shard/.
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

  Not collective; the same on all ranks.

  Errors: OPTION if the options do not go with the table, or with its sharding type
*/
PetscErrorCode TrsShardingChoose(const TrsShardingContext *context, int t, TrsShardingChoice *choice);
