/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Copies of the tables that make the same update (-replica_sync gradients). Each shard has one owner
  in every copy. Before an update, these owners exchange the ids and gradients that have arrived at
  them. Each owner then updates its shard as if there were one copy.

  The ranks of a copy are consecutive, so the order of the copies is the order of the global batch.
  A row's gradients are thus added in the same order as with one copy.

  Ids are sent during the dense backward. Gradients are sent as soon as they have arrived in the
  copy. If a copy has one rank, or a device's stream makes the exchanges, this is also during the
  dense backward. Otherwise it is during the updates of the preceding groups. On a device, these
  exchanges and the sort of the ids use a separate stream.

  Cost per step and rank: an owner sends its ids and gradients to the other R - 1 owners. It needs
  memory for the ids and gradients of all R copies.
*/
#pragma once

#include "shard/sharding.h"

/* The exchanges of a group: lengths of bags, ids, weights, and gradients. */
typedef enum {
  TRS_COPIED_LENGTHS,
  TRS_COPIED_VALUES,
  TRS_COPIED_WEIGHTS,
  TRS_COPIED_GRADIENTS,
  TRS_N_COPIED
} TrsCopied;

/* The ids and gradients of a group from all copies. */
typedef struct {
  TrsRequest request[TRS_N_COPIED];
  int64_t *counts[TRS_N_COPIED], *displs[TRS_N_COPIED]; /* [R] for each exchange */
  /* the gradients that have arrived at this rank */
  const float *grad;
  int64_t stride;
  /* int64 [R F + 1] and int [R F]: the blocks of bags, and their new order */
  TrsBuffer block_begin, order;
  /* arrived: [copy][feature][sample]; merged: [feature][copy][sample] */
  TrsKjt arrived, merged;
  /* rows: gradients as they arrived; ordered: gradients per id, feature by feature */
  TrsDeviceBuffer rows, ordered;
  /* places: int64, for each merged id its index in `arrived`; lengths: scratch */
  TrsDeviceBuffer places, lengths;
} TrsCopiedGroup;

typedef struct {
  /* The owners of this rank's shards, ordered by copy; borrowed. NULL: nothing is exchanged. */
  TrsComm owners;
  PetscBool early; /* true: the exchange of gradients starts before the dense backward */
  TrsWorkspace workspace;
  TrsStream stream; /* used for the exchanges, and for work on their results */
  TrsEvent begun, merged;
  /*
    int64 [R, groups, 2] numbers of samples and of ids: first this rank's numbers, repeated for each
    copy, then each copy's numbers. They are being sent from Tell to Start.
  */
  TrsBuffer told;
  TrsCounts request;
  int n_groups;
  TrsCopiedGroup *group; /* [n_groups] */
} TrsCopies;

/*
  Create the exchanges between copies. owners: borrowed; NULL: nothing is exchanged. alone: a copy
  has one rank. Not collective.
*/
PetscErrorCode TrsCopiesCreate(TrsComm owners, int n_groups, PetscBool alone, TrsCopies *copies);
PetscErrorCode TrsCopiesFree(TrsCopies *copies);

/*
  TrsCopiesTell - Start to send the numbers of samples and ids of each group to the other owners.

  Collective on the owners. Must be called when the ids of a training batch have arrived. Without
  owners, this function and the functions below must not be called.
*/
PetscErrorCode TrsCopiesTell(TrsCopies *copies, const TrsSharding *group, int slot);

/*
  TrsCopiesStart - Start to exchange the ids. With `early`, also wait for the gradients in this copy
    and start to exchange them. Must be called after the payloads' backward_start.

  Collective, after Tell, on the owners and on the ranks of backward_wait.
*/
PetscErrorCode TrsCopiesStart(TrsCopies *copies, const TrsSharding *group, int slot, TrsStream stream,
                              const TrsPooledMatrix *grad);

/*
  TrsCopiesUpdate - Update the rows of all groups with the gradients of all copies.

  Collective, after Start, on the owners and on the ranks of backward_wait and of the updates.
*/
PetscErrorCode TrsCopiesUpdate(TrsCopies *copies, const TrsSharding *group, int slot, TrsStream stream,
                               const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args);
