/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A proposer repeatedly offers one option for each table, and gets the outcome as feedback.

  Source: TorchRec's Proposer classes of the same names; src/plan/RULES.md, section 9
*/
#pragma once

#include "plan/partitioner.h"
#include "plan/storage_reservation.h"

/* The outcome of a proposal. */
typedef struct {
  PetscBool placed;
  double rating;      /* valid if placed */
  TrsInt128 used_hbm; /* sum over the proposal's options */
} TrsOutcome;

typedef struct TrsProposer_ TrsProposer;

typedef struct {
  PetscErrorCode (*load)(TrsProposer *proposer);
  PetscErrorCode (*propose)(TrsProposer *proposer, PetscBool *more); /* fills proposer->proposal */
  PetscErrorCode (*feedback)(TrsProposer *proposer, const TrsOutcome *outcome);
  PetscErrorCode (*destroy)(TrsProposer *proposer); /* frees the members of data */
  PetscBool uses_rating;                            /* the outcome's rating must be exact */
} TrsProposerOps;

struct TrsProposer_ {
  TrsProposerKind kind;
  const TrsProposerOps *ops;
  const TrsCostModel *model;
  const TrsSearchSpace *space;
  const TrsReservation *reservation;
  TrsProposal proposal; /* space->n_tables options */
  /* Upper bound on the number of proposals; 0 if the proposer depends on the outcomes. */
  int64_t n_proposals;
  /* Number of tables that differ from the last proposal; -1: any table may differ. */
  int n_changes;
  int changed; /* the changed table if n_changes is 1 */
  void *data;
};

/* Create a proposer. All arguments are borrowed until TrsProposerDestroy(). Not collective. */
PetscErrorCode TrsProposerCreate(TrsProposerKind kind, const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, TrsProposer *proposer);
PetscErrorCode TrsProposerDestroy(TrsProposer *proposer);

extern const TrsProposerOps trs_proposer_grid_search, trs_proposer_greedy, trs_proposer_uniform,
    trs_proposer_dynamic_programming, trs_proposer_scaleup;

/*
  Sort each table's options by score, in a stable order. sorted[first .. first + n - 1] of a table
  are indices into space->option. The score is the slowest shard's time if `depth` is set, else the
  sum over shards. Free with PetscFree(). Not collective.
*/
PetscErrorCode TrsSortOptions(const TrsSearchSpace *space, PetscBool depth, int **sorted);
