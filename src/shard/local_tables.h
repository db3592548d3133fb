/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lookups for a forward if one rank has all tables whole, without routes and exchanges. The vectors
  have the same bits as those of sharded tables (sharded_ebc.h). For devices with host memory.
*/
#pragma once

#include "embed/lookup.h"
#include "shard/route.h"

typedef struct TrsLocalTablesImpl *TrsLocalTables;

/*
  TrsLocalTablesCreate - Create the lookups of all tables.

  Not collective. The arguments are borrowed. Several threads may share one set of shards, each
  thread with its own local tables.

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

  In:     batch   the samples' ids, with offsets, features in the order of src/RULES.md, rule A2
  Out:    pooled  has the columns given to Create
*/
PetscErrorCode TrsLocalTablesForward(TrsLocalTables local, const TrsKjt *batch,
                                     const TrsPooledMatrix *pooled);
