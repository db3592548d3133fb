/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The planning loop: proposers propose, the partitioner places, and the loop keeps the best plan.

  Source: TorchRec EmbeddingShardingPlanner.plan; src/plan/RULES.md, section 8
*/
#pragma once

#include "plan/search/proposer.h"

typedef struct {
  PetscBool found;
  TrsProposal proposal;
  TrsPlacement placement;
  double rating;
  TrsProposerKind proposer; /* the proposer that made the plan */
} TrsBestPlan;

typedef struct {
  int n_proposers;
  /* kept, because the best plan may point to a proposer's data */
  TrsProposer proposer[TRS_PLAN_MAX_PROPOSERS + 4];
  int64_t proposals, partitioned, feasible;
  PetscBool timed_out; /* true: -plan_timeout_seconds ended the proposals */
  PetscBool any_failed;
  /* The smallest memory (by hbm, then by ddr) of all proposals that could not be placed. */
  TrsInt128 lowest_hbm, lowest_ddr;
  TrsBestPlan best;
  /* The number of times the optimal proposer tried to build a plan, because the other proposers
     found none. */
  int attempts;
  /* true: the optimal proposer's bound proves that there is no plan. */
  PetscBool no_plan_proven;
  double seconds, cpu_seconds; /* time of the whole planning, set by the planner */
} TrsPlanSearch;

/*
  Copy a plan. The copy borrows its options from the search. Free it with TrsBestPlanFree(). Not
  collective.
*/
PetscErrorCode TrsBestPlanCopy(const TrsBestPlan *from, TrsBestPlan *to);
PetscErrorCode TrsBestPlanFree(TrsBestPlan *plan);

/* Run the proposers of the settings. Free the result with TrsPlanSearchFree(). Not collective. */
PetscErrorCode TrsPlanSearchRun(const TrsCostModel *model, const TrsSearchSpace *space,
                                const TrsReservation *reservation, TrsPlanSearch *search);
PetscErrorCode TrsPlanSearchFree(TrsPlanSearch *search);

/*
  List the proposers to run in kind[TRS_PLAN_MAX_PROPOSERS + 4], and return their number. For
  optimal and auto, list TorchRec's default proposers. Their own search runs later. Not collective.
*/
int TrsPlanProposers(const TrsPlanSettings *settings, TrsProposerKind *kind);

/* The settings' partitioner. It may fill the memory that the reservation leaves. Not collective. */
TrsPartitionerConfig TrsPlanPartitioner(const TrsCostModel *model, const TrsReservation *reservation);

/* This thread's CPU time in seconds. This thread does all of the planning. */
double TrsPlanCpuClock(void);
