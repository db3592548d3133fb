/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The forward of rows in order (ordered.c) where the host can read every row itself: fp32 tables in
  host memory, without caches. No row is copied that need not travel:

    ids of my rows, from the others --lookup--> rows in the order in which they travel back
    own samples' ids: my rows are read in their tables, the others' rows where they arrive, with
      lanes in the memory of their owner

  Internal to shard/.
*/
#pragma once

#include "dist/sequence_all_to_all.h"
#include "shard/sharding.h"

typedef struct TrsRowsInPlaceImpl *TrsRowsInPlace;

/*
  In:   rows_dist  the exchange of rows of row_dim floats, borrowed
  Out:  rows       NULL if the group's tables are others
  Not collective: all ranks get rows, or none does.
*/
PetscErrorCode TrsRowsInPlaceCreate(TrsSharding sharding, TrsSequenceAllToAll rows_dist, int64_t row_dim,
                                    TrsRowsInPlace *rows);
PetscErrorCode TrsRowsInPlaceDestroy(TrsRowsInPlace *rows);

/*
  Prepare a batch. ids: of the entries; places: where each of them lies in `send`, of which no more
  is needed later. A place becomes -2 - r for an id of this rank's row r, and -1 for a pruned one.
  Not collective.
*/
void TrsRowsInPlacePrepare(TrsRowsInPlace rows, const TrsKjt *send, const TrsKjt *ids, int64_t *places);

/* Look up the rows of other ranks' samples, and send them. Collective. */
PetscErrorCode TrsRowsInPlaceStart(TrsRowsInPlace rows, TrsShardingSlot *slot, TrsStream stream);

/*
  Pool the rows of own samples, with ids and places as Prepare left them. Means are still sums.
  Collective.
*/
PetscErrorCode TrsRowsInPlaceWait(TrsRowsInPlace rows, TrsStream stream, const TrsKjt *ids, int64_t *places,
                                  const TrsPooledMatrix *pooled);
