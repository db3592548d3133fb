/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The forward of rows in order (ordered.c) if the host can read every row itself: fp32 tables in
  host memory, without caches. Only rows that travel are copied:

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
  In:   rows_dist  the exchange of rows with row_dim floats, borrowed
  Out:  rows       NULL if this forward does not fit the group's tables
  Not collective: all ranks get rows, or none does.
*/
PetscErrorCode TrsRowsInPlaceCreate(TrsSharding sharding, TrsSequenceAllToAll rows_dist, int64_t row_dim,
                                    TrsRowsInPlace *rows);
PetscErrorCode TrsRowsInPlaceDestroy(TrsRowsInPlace *rows);

/*
  Prepare a batch. ids: the ids of the entries; places: the place of each id in `send`, which is not
  needed afterwards. A place becomes -2 - r for an id of this rank's row r, and -1 for a pruned id.
  Not collective.
*/
void TrsRowsInPlacePrepare(TrsRowsInPlace rows, const TrsKjt *send, const TrsKjt *ids, int64_t *places);

/* Look up the rows of other ranks' samples, and send them. Collective. */
PetscErrorCode TrsRowsInPlaceStart(TrsRowsInPlace rows, TrsShardingSlot *slot, TrsStream stream);

/*
  Pool the rows of this rank's samples, with ids and places as Prepare left them. Means are still
  sums. Collective.
*/
PetscErrorCode TrsRowsInPlaceWait(TrsRowsInPlace rows, TrsStream stream, const TrsKjt *ids, int64_t *places,
                                  const TrsPooledMatrix *pooled);
