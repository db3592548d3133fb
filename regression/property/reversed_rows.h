/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A placement (embed/placement.h) that gives key k of a shard the row rows - 1 - k. All results stay,
  bit for bit, if nothing but the placement knows where rows are. Not for replicas.
*/
#pragma once

#include "embed/placement.h"

/* Reverse the rows of shards, and let lookups that are made of them know. The shards have no states yet. */
PetscErrorCode reversed_rows_set(TrsEmbeddingShards *shards);

/* The memory's row of a shard's row. */
int64_t reversed_rows_place(const TrsEmbeddingShards *shards, const TrsEmbeddingShard *shard, int64_t row);
