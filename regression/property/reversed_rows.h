/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A placement (embed/placement.h) that gives key k of a shard the row rows - 1 - k. All results stay
  equal bit for bit if only the placement knows the places of rows. Not for replicas.
*/
#pragma once

#include "embed/placement.h"

/*
  Reverse the rows of shards, and install the placement for their lookups. The shards must not have
  states yet.
*/
PetscErrorCode reversed_rows_set(TrsEmbeddingShards *shards);

/* Return the row in memory of a shard's row. */
int64_t reversed_rows_place(const TrsEmbeddingShards *shards, const TrsEmbeddingShard *shard, int64_t row);
