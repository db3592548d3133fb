/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Choose payload, grid and update for a table from a table of choices, and refuse combinations that
  do not work. Internal to shard/.
*/
#pragma once

#include "shard/sharding.h"

typedef struct {
  const TrsShardingOps *payload; /* NULL: there is no payload for this combination */
  TrsGrid grid;
  const TrsUpdateOps *update;
} TrsShardingChoice;

/*
  TrsShardingChoose - Choose the payload, grid and update of the context's table t.

  Not collective; the result is the same on all ranks.

  Errors: OPTION if the options conflict with the table or its sharding type
*/
PetscErrorCode TrsShardingChoose(const TrsShardingContext *context, int t, TrsShardingChoice *choice);
