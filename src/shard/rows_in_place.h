/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The forward of rows in order (ordered.c) for tables that the host can read: fp32 tables in host
  memory, without caches. Only rows that are sent are copied:

    ids of my rows, from the others --lookup--> rows in the order in which they are sent back
    own samples' ids: my rows are read in their tables, the others' rows where they arrive; with
      shared memory lanes this is the memory of their owner

  Internal to shard/.
*/
#pragma once

#include "dist/sequence_all_to_all.h"
#include "shard/sharding.h"

typedef struct TrsRowsInPlaceImpl *TrsRowsInPlace;

/*
  Create the forward in place. Not collective: either all ranks get `rows` or none of them does.

  In:   rows_dist  the exchange of rows with row_dim floats, borrowed
  Out:  rows       NULL if this forward does not fit the group's tables
*/
PetscErrorCode TrsRowsInPlaceCreate(TrsSharding sharding, TrsSequenceAllToAll rows_dist, int64_t row_dim,
                                    TrsRowsInPlace *rows);
PetscErrorCode TrsRowsInPlaceDestroy(TrsRowsInPlace *rows);

/*
  Prepare a batch. ids: the ids of the entries. places: for each id its index in `send`. `send` is
  not needed afterwards. For an id of this rank's row r, Prepare replaces the index by -2 - r, and
  for an id without a row (pruned) by -1. Not collective.
*/
void TrsRowsInPlacePrepare(TrsRowsInPlace rows, const TrsKjt *send, const TrsKjt *ids, int64_t *places);

/* Look up the rows of the other ranks' samples, and send them. Collective. */
PetscErrorCode TrsRowsInPlaceStart(TrsRowsInPlace rows, TrsShardingSlot *slot, TrsStream stream);

/*
  Pool the rows of this rank's samples, with the ids and places that Prepare made. Means are not
  divided yet. Collective.
*/
PetscErrorCode TrsRowsInPlaceWait(TrsRowsInPlace rows, TrsStream stream, const TrsKjt *ids, int64_t *places,
                                  const TrsPooledMatrix *pooled);
