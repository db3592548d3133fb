/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Copies of the tables that make the same update (-replica_sync gradients). Before an update, the
  owners of the same shard in all copies bring together the ids and gradients that have arrived at
  them. Each owner then updates its shard as the owner of a single copy would.

  The copies' ranks follow each other. So ids and gradients in the order of the copies are in the
  order of the global batch, and a row's gradients are added in the order of a single copy.

  Ids travel under the dense backward, and gradients from when they have arrived in the copy: under
  the dense backward too, if a copy has one rank or a device's stream makes the exchanges, and else
  under the updates of the groups before. A device has a stream of its own for all of this, and for
  the sort of the ids.

  Cost per step and rank: the owner's ids and gradients go to the other R - 1 owners; memory for
  those of all R copies.
*/
#pragma once

#include "shard/sharding.h"

/* The exchanges of a group: of numbers for each bag, for each id, and of gradients. */
typedef enum {
  TRS_COPIED_LENGTHS,
  TRS_COPIED_VALUES,
  TRS_COPIED_WEIGHTS,
  TRS_COPIED_GRADIENTS,
  TRS_N_COPIED
} TrsCopied;

/* A group's ids and gradients of all copies. */
typedef struct {
  TrsRequest request[TRS_N_COPIED];
  int64_t *counts[TRS_N_COPIED], *displs[TRS_N_COPIED]; /* [R] each */
  const float *grad;                                    /* this rank's, that have arrived */
  int64_t stride;
  TrsBuffer block_begin, order;    /* int64 [R F + 1], int [R F]: the bag blocks to permute */
  TrsKjt arrived, merged;          /* [copy][feature][sample]; [feature][copy][sample] */
  TrsDeviceBuffer rows, ordered;   /* gradients as they arrive; by id, feature by feature */
  TrsDeviceBuffer places, lengths; /* int64 of each merged id: its number in `arrived`; scratch */
} TrsCopiedGroup;

typedef struct {
  /* Borrowed: the owners of this rank's shards, by copy. NULL: nothing is exchanged. */
  TrsComm owners;
  PetscBool early; /* gradients are waited for before the dense backward */
  TrsWorkspace workspace;
  TrsStream stream; /* of the exchanges, and of what is made of their results */
  TrsEvent begun, merged;
  /*
    int64 [R, groups, 2] samples and ids: this rank's, once for each copy; then each copy's. They
    are under way from Tell to Start.
  */
  TrsBuffer told;
  TrsCounts request;
  int n_groups;
  TrsCopiedGroup *group; /* [n_groups] */
} TrsCopies;

/*
  Not collective. owners: borrowed; NULL: there is nothing to exchange. alone: a copy has one rank.
*/
PetscErrorCode TrsCopiesCreate(TrsComm owners, int n_groups, PetscBool alone, TrsCopies *copies);
PetscErrorCode TrsCopiesFree(TrsCopies *copies);

/*
  TrsCopiesTell - Start to tell the other owners how many samples and ids each group of tables has.

  Collective on the owners, when the ids of a training batch have arrived. Not to be called without
  owners, as the functions below.
*/
PetscErrorCode TrsCopiesTell(TrsCopies *copies, const TrsSharding *group, int slot);

/*
  TrsCopiesStart - Start to bring the ids together, and the gradients that are waited for early. The
  payloads' backward_start has been called.

  Collective on the owners and on what backward_wait is collective on, after Tell.
*/
PetscErrorCode TrsCopiesStart(TrsCopies *copies, const TrsSharding *group, int slot, TrsStream stream,
                              const TrsPooledMatrix *grad);

/*
  TrsCopiesUpdate - Update the rows of all groups with the gradients of all copies.

  Collective on the owners, and on what backward_wait and the updates are collective on, after
  Start.
*/
PetscErrorCode TrsCopiesUpdate(TrsCopies *copies, const TrsSharding *group, int slot, TrsStream stream,
                               const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args);
