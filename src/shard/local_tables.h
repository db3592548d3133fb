/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tables that are all whole on one rank: lookups for a forward, without routes and exchanges. They
  give the vectors that the sharded tables give (sharded_ebc.h), with the same bits. For devices of
  host memory.
*/
#pragma once

#include "embed/lookup.h"
#include "shard/route.h"

typedef struct TrsLocalTablesImpl *TrsLocalTables;

/*
  TrsLocalTablesCreate - Create the lookups of all tables.

  Not collective. The arguments are borrowed; those of one set of shards may be used by several
  threads, each with local tables of its own.

  In:     shards    every table whole
          columns   [features] first columns of the features' vectors (src/RULES.md, rule A2)
          position  [features] position weights of the features that have them
*/
PetscErrorCode TrsLocalTablesCreate(const TrsComputeOps *compute, const TrsEmbeddingShards *shards,
                                    const int64_t *columns, const TrsPositionWeight *position,
                                    TrsLocalTables *local);
PetscErrorCode TrsLocalTablesDestroy(TrsLocalTables *local);

/*
  TrsLocalTablesForward - Look up a batch.

  Not collective.

  In:     batch   the samples' ids, with offsets, features in the order of src/RULES.md,
                  rule A2
  Out:    pooled  with the columns given to Create
*/
PetscErrorCode TrsLocalTablesForward(TrsLocalTables local, const TrsKjt *batch,
                                     const TrsPooledMatrix *pooled);
