/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A proposer offers one option for each table, again and again, and is told the outcome.

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
  PetscErrorCode (*destroy)(TrsProposer *proposer); /* frees what data points to */
  PetscBool uses_rating;                            /* the outcome's rating must be exact */
} TrsProposerOps;

struct TrsProposer_ {
  TrsProposerKind kind;
  const TrsProposerOps *ops;
  const TrsCostModel *model;
  const TrsSearchSpace *space;
  const TrsReservation *reservation;
  TrsProposal proposal; /* of space->n_tables options */
  /* The most proposals of a proposer that does not depend on the outcomes, else 0. */
  int64_t n_proposals;
  /* Number of tables that differ from the last proposal, or -1 if any may differ. */
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
  Sort each table's options by score, in a stable order. sorted[table's first .. + n - 1] are
  indices into space->option. The score is that of the slowest shard if `depth` is set, else the
  sum. Free with PetscFree(). Not collective.
*/
PetscErrorCode TrsSortOptions(const TrsSearchSpace *space, PetscBool depth, int **sorted);
