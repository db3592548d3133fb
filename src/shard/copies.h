/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Copies of the tables that make the same update (-replica_sync gradients). Before an update, the
  owners of a shard in all copies exchange the ids and gradients that have arrived at them. Each
  owner then updates its shard as the owner of a single copy would.

  The ranks of a copy are consecutive, so the order of the copies is the order of the global batch:
  a row's gradients are added in the order of a single copy.

  Ids travel during the dense backward. Gradients travel as soon as they have arrived in the copy:
  also during the dense backward if a copy has one rank or a device's stream makes the exchanges,
  otherwise during the updates of the preceding groups. On a device these exchanges, and the sort of
  the ids, have a stream of their own.

  Cost per step and rank: the owner's ids and gradients go to the other R - 1 owners; memory for the
  ids and gradients of all R copies.
*/
#pragma once

#include "shard/sharding.h"

/* A group's exchanges: lengths of bags, ids, weights, and gradients. */
typedef enum {
  TRS_COPIED_LENGTHS,
  TRS_COPIED_VALUES,
  TRS_COPIED_WEIGHTS,
  TRS_COPIED_GRADIENTS,
  TRS_N_COPIED
} TrsCopied;

/* A group's ids and gradients from all copies. */
typedef struct {
  TrsRequest request[TRS_N_COPIED];
  int64_t *counts[TRS_N_COPIED], *displs[TRS_N_COPIED]; /* [R] each */
  /* this rank's gradients, which have arrived */
  const float *grad;
  int64_t stride;
  TrsBuffer block_begin, order; /* int64 [R F + 1], int [R F]: the bag blocks to permute */
  TrsKjt arrived, merged;       /* [copy][feature][sample]; [feature][copy][sample] */
  /* gradients as they arrived; gradients by id, feature by feature */
  TrsDeviceBuffer rows, ordered;
  TrsDeviceBuffer places, lengths; /* int64 number of each merged id in `arrived`; scratch */
} TrsCopiedGroup;

typedef struct {
  /* Borrowed: the owners of this rank's shards, by copy. NULL: nothing is exchanged. */
  TrsComm owners;
  PetscBool early; /* gradients are waited for before the dense backward */
  TrsWorkspace workspace;
  TrsStream stream; /* for the exchanges, and for work on their results */
  TrsEvent begun, merged;
  /*
    int64 [R, groups, 2] numbers of samples and ids: this rank's, once for each copy; then each
    copy's. In flight from Tell to Start.
  */
  TrsBuffer told;
  TrsCounts request;
  int n_groups;
  TrsCopiedGroup *group; /* [n_groups] */
} TrsCopies;

/* Not collective. owners: borrowed; NULL: nothing is exchanged. alone: a copy has one rank. */
PetscErrorCode TrsCopiesCreate(TrsComm owners, int n_groups, PetscBool alone, TrsCopies *copies);
PetscErrorCode TrsCopiesFree(TrsCopies *copies);

/*
  TrsCopiesTell - Start to send each group's numbers of samples and ids to the other owners.

  Collective on the owners; call it when the ids of a training batch have arrived. Without owners,
  this function and the functions below must not be called.
*/
PetscErrorCode TrsCopiesTell(TrsCopies *copies, const TrsSharding *group, int slot);

/*
  TrsCopiesStart - Start to exchange the ids, and the gradients that are waited for early. Call it
  after the payloads' backward_start.

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
