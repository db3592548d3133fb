/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A proposer repeatedly offers a proposal: one option for each table. It then gets the outcome as
  feedback.

  Source: TorchRec's Proposer classes of the same names; src/plan/RULES.md, section 9
*/
#pragma once

#include "plan/cost/storage_reservation.h"
#include "plan/search/partitioner.h"

/* The outcome of a proposal. */
typedef struct {
  PetscBool placed;
  double rating;      /* valid only if placed */
  TrsInt128 used_hbm; /* sum over the proposal's options */
} TrsOutcome;

typedef struct TrsProposer_ TrsProposer;

typedef struct {
  PetscErrorCode (*load)(TrsProposer *proposer);
  PetscErrorCode (*propose)(TrsProposer *proposer, PetscBool *more); /* fills proposer->proposal */
  PetscErrorCode (*feedback)(TrsProposer *proposer, const TrsOutcome *outcome);
  PetscErrorCode (*destroy)(TrsProposer *proposer); /* frees the members of data */
  PetscBool uses_rating;                            /* true: the proposer needs exact ratings */
} TrsProposerOps;

struct TrsProposer_ {
  TrsProposerKind kind;
  const TrsProposerOps *ops;
  const TrsCostModel *model;
  const TrsSearchSpace *space;
  const TrsReservation *reservation;
  TrsProposal proposal; /* one option for each of space->n_tables tables */
  /* Upper bound on the number of proposals. 0: it depends on the outcomes. */
  int64_t n_proposals;
  /* Number of tables whose options differ from the last proposal. -1: any table may differ. */
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
  Sort each table's options by score, in a stable order. A table's n entries begin at sorted[first].
  They are indices into space->option. If `depth` is set, the score is the slowest shard's time.
  Otherwise it is the sum over shards. Free `sorted` with PetscFree(). Not collective.
*/
PetscErrorCode TrsSortOptions(const TrsSearchSpace *space, PetscBool depth, int **sorted);
