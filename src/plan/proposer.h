/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Proposers: each offers one option a table again and again, and hears how it went.

  Source: TorchRec's Proposer classes of the same names; src/plan/RULES.md, section 9
*/
#pragma once

#include "plan/partitioner.h"
#include "plan/storage_reservation.h"

/* What became of a proposal. */
typedef struct {
  PetscBool placed;
  double rating;      /* valid when placed */
  TrsInt128 used_hbm; /* sum over the proposal's options */
} TrsOutcome;

typedef struct TrsProposer_ TrsProposer;

typedef struct {
  PetscErrorCode (*load)(TrsProposer *proposer);
  PetscErrorCode (*propose)(TrsProposer *proposer, PetscBool *more); /* into proposer->proposal */
  PetscErrorCode (*feedback)(TrsProposer *proposer, const TrsOutcome *outcome);
  PetscErrorCode (*destroy)(TrsProposer *proposer);
  PetscBool uses_rating; /* the outcome's rating must be exact */
} TrsProposerOps;

struct TrsProposer_ {
  TrsProposerKind kind;
  const TrsProposerOps *ops;
  const TrsCostModel *model;
  const TrsSearchSpace *space;
  const TrsReservation *reservation;
  TrsProposal proposal; /* of space->n_tables */
  int64_t n_proposals;  /* at most, of one whose proposals do not depend on what it hears; else 0 */
  int n_changes;        /* tables that differ from the last proposal, -1: any may */
  int changed;          /* with n_changes 1: the only one */
  void *data;
};

/* All tables are borrowed until TrsProposerDestroy(). Not collective. */
PetscErrorCode TrsProposerCreate(TrsProposerKind kind, const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, TrsProposer *proposer);
PetscErrorCode TrsProposerDestroy(TrsProposer *proposer);

extern const TrsProposerOps trs_proposer_grid_search, trs_proposer_greedy, trs_proposer_uniform,
    trs_proposer_dynamic_programming, trs_proposer_scaleup;

/*
  Indices of each table's options sorted by score, stably: sorted[table's first .. + n - 1] are indices into space->option.
  depth: by the slowest shard, else by the sum. Free with PetscFree(). Not collective.
*/
PetscErrorCode TrsSortOptions(const TrsSearchSpace *space, PetscBool depth, int **sorted);
