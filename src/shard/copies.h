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
  /* [2, R, 2] samples and ids: this rank's, once for each copy; then each copy's */
  int64_t *told;
  int64_t *counts, *displs;                       /* [R] */
  TrsDeviceBuffer lengths, values, weights, rows; /* as they arrive, one copy's after another's */
  TrsDeviceBuffer ordered;                        /* gradients by id, feature by feature */
  TrsKjt merged;                                  /* the ids of all copies */
} TrsCopies;

/* Not collective. owners: borrowed, on hosts alone; NULL: there is nothing to exchange. */
PetscErrorCode TrsCopiesCreate(TrsComm owners, TrsCopies *copies);
PetscErrorCode TrsCopiesFree(const TrsDeviceOps *device, TrsCopies *copies);

/*
  TrsCopiesUpdate - Update a group's rows with the gradients of all copies.

  Collective on the owners, and on what the group's update is collective on.

  In:     grad  the result of the payload's backward_wait, [samples or ids, stride]
  InOut:  slot  its received ids are changed under way, and restored
*/
PetscErrorCode TrsCopiesUpdate(TrsCopies *copies, TrsSharding sharding, TrsShardingSlot *slot,
                               TrsStream stream, const float *grad, int64_t stride,
                               const TrsSparseOptimizerArgs *args);
