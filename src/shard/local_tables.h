/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Lookups for a forward on one rank that has all tables whole. They need no routes and no exchanges.
  The vectors equal those of sharded tables bit for bit (sharded_ebc.h). For devices with host
  memory.
*/
#pragma once

#include "embed/lookup.h"
#include "shard/route.h"

typedef struct TrsLocalTablesImpl *TrsLocalTables;

/*
  TrsLocalTablesCreate - Create the lookups of all tables.

  Not collective. The arguments are borrowed. Several threads may use the same shards if each thread
  creates its own local tables.

  In:     shards    must have every table whole
          columns   [features] first columns of the features' vectors (src/RULES.md, rule A2)
          position  [features] position weights, for features that have them
*/
PetscErrorCode TrsLocalTablesCreate(const TrsComputeOps *compute, const TrsEmbeddingShards *shards,
                                    const int64_t *columns, const TrsPositionWeight *position,
                                    TrsLocalTables *local);
PetscErrorCode TrsLocalTablesDestroy(TrsLocalTables *local);

/*
  TrsLocalTablesForward - Look up a batch.

  Not collective.

  In:     batch   the samples' ids, with offsets; the features have the order of src/RULES.md, rule
                  A2
  Out:    pooled  must have the columns that Create got
*/
PetscErrorCode TrsLocalTablesForward(TrsLocalTables local, const TrsKjt *batch,
                                     const TrsPooledMatrix *pooled);

/*
  Return how many ids of each feature had no row in the last forward, [features]. Only tables that
  give rows to ids count. Borrowed until the next forward.
*/
const int64_t *TrsLocalTablesUnknown(TrsLocalTables local);
