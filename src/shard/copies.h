/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Copies of the tables that make the same update (-replica_sync gradients). Before an update, the
  owners of the same shard in all copies bring together the ids and gradients that have arrived at
  them. Each owner then updates its shard as the owner of a single copy would.

  The copies' ranks follow each other. So ids and gradients in the order of the copies are in the
  order of the global batch, and a row's gradients are added in the order of a single copy.

  Cost per step and rank: the owner's ids and gradients go to the other R - 1 owners; memory for
  those of all R copies, of one group of tables at a time.
*/
#pragma once

#include "shard/sharding.h"

typedef struct {
  /* Borrowed: the owners of this rank's shards, by copy. NULL: nothing is exchanged. */
  TrsComm owners;
  TrsWorkspace workspace;
  /*
    int64 [R, groups, 2] samples and ids: this rank's, once for each copy; then each copy's. They
    are under way from Tell to the first update.
  */
  TrsBuffer told;
  int n_told; /* groups */
  TrsCounts request;
  int64_t *counts, *displs;        /* [R] */
  TrsBuffer block_begin, order;    /* int64 [R F + 1], int [R F]: the bag blocks to permute */
  TrsKjt arrived, merged;          /* [copy][feature][sample]; [feature][copy][sample] */
  TrsDeviceBuffer rows, ordered;   /* gradients as they arrive; by id, feature by feature */
  TrsDeviceBuffer places, lengths; /* int64 of each merged id: its number in `arrived`; scratch */
} TrsCopies;

/* Not collective. owners: borrowed; NULL: there is nothing to exchange. */
PetscErrorCode TrsCopiesCreate(TrsComm owners, TrsCopies *copies);
PetscErrorCode TrsCopiesFree(TrsCopies *copies);

/*
  TrsCopiesTell - Start to tell the other owners how many samples and ids each group of tables has.

  Collective on the owners, before the updates of a step. Not to be called without owners.
*/
PetscErrorCode TrsCopiesTell(TrsCopies *copies, int n_groups, const TrsSharding *group, int slot);

/*
  TrsCopiesUpdate - Update the rows of group g with the gradients of all copies.

  Collective on the owners, and on what the group's update is collective on.

  In:     grad  the result of the payload's backward_wait, [samples or ids, stride]
  InOut:  slot  its received ids are changed under way, and restored
*/
PetscErrorCode TrsCopiesUpdate(TrsCopies *copies, int g, TrsSharding sharding, TrsShardingSlot *slot,
                               TrsStream stream, const float *grad, int64_t stride,
                               const TrsSparseOptimizerArgs *args);
