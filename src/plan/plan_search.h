/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The planning loop: proposers propose, the partitioner places, the best placement is kept.

  Source: TorchRec EmbeddingShardingPlanner.plan; src/plan/RULES.md, section 8
*/
#pragma once

#include "plan/proposer.h"

typedef struct {
  PetscBool found;
  TrsProposal proposal;
  TrsPlacement placement;
  double rating;
  TrsProposerKind proposer; /* the proposer that made it */
} TrsBestPlan;

typedef struct {
  int n_proposers;
  /* kept, because the best plan may point into them */
  TrsProposer proposer[TRS_PLAN_MAX_PROPOSERS + 4];
  int64_t proposals, partitioned, feasible;
  PetscBool timed_out; /* -plan_timeout_seconds ended the proposals */
  PetscBool any_failed;
  /* The least memory (hbm, then ddr) of the proposals that could not be placed. */
  TrsInt128 lowest_hbm, lowest_ddr;
  TrsBestPlan best;
  /* Attempts of the optimal proposer to build a plan where the others had none. */
  int attempts;
  /* The optimal proposer's bound proves that there is no plan. */
  PetscBool no_plan_proven;
  double seconds, cpu_seconds; /* of the whole planning, set by the planner */
} TrsPlanSearch;

/* A copy whose options are still the search's. Free with TrsBestPlanFree(). Not collective. */
PetscErrorCode TrsBestPlanCopy(const TrsBestPlan *from, TrsBestPlan *to);
PetscErrorCode TrsBestPlanFree(TrsBestPlan *plan);

/* Run all proposers of the settings. Free the result with TrsPlanSearchFree(). Not collective. */
PetscErrorCode TrsPlanSearchRun(const TrsCostModel *model, const TrsSearchSpace *space,
                                const TrsReservation *reservation, TrsPlanSearch *search);
PetscErrorCode TrsPlanSearchFree(TrsPlanSearch *search);

/*
  List the proposers to run: kind [TRS_PLAN_MAX_PROPOSERS + 4]. optimal and auto stand for
  TorchRec's default list; their own search follows later. Not collective. Returns their number.
*/
int TrsPlanProposers(const TrsPlanSettings *settings, TrsProposerKind *kind);

/* The partitioner of the settings, which places what the reservation leaves. Not collective. */
TrsPartitionerConfig TrsPlanPartitioner(const TrsCostModel *model, const TrsReservation *reservation);

/* Seconds for which this thread had a core. It does all the planning. */
double TrsPlanCpuClock(void);
