/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A placement (embed/placement.h) that stores key k of a shard in row number `rows` - 1 - k. If no
  other code assumes where rows are stored, all results stay equal bit for bit. It must not be used
  for replicas.
*/
#pragma once

#include "embed/placement.h"

/*
  Reverse the rows of shards, and install the placement for their lookups. The shards must not have
  optimizer states yet.
*/
PetscErrorCode reversed_rows_set(TrsEmbeddingShards *shards);

/* Return the row in memory that holds the given row of a shard. */
int64_t reversed_rows_place(const TrsEmbeddingShards *shards, const TrsEmbeddingShard *shard, int64_t row);
