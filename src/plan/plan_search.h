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
  TrsProposerKind proposer; /* that offered it */
} TrsBestPlan;

typedef struct {
  int n_proposers;
  TrsProposer proposer[TRS_PLAN_MAX_PROPOSERS + 4]; /* kept: the best plan may point into them */
  int64_t proposals, partitioned, feasible;
  PetscBool any_failed;
  TrsInt128 lowest_hbm, lowest_ddr; /* of the proposals that could not be placed: least hbm, then ddr */
  TrsBestPlan best;
  int attempts;                /* of the optimal proposer to build a plan where the others had none */
  PetscBool no_plan_proven;    /* by the optimal proposer's bound: there is none */
  double seconds, cpu_seconds; /* of the whole of planning, set by the planner */
} TrsPlanSearch;

/* Run all proposers of the settings. Not collective. Free with TrsPlanSearchFree(). */
PetscErrorCode TrsPlanSearchRun(const TrsCostModel *model, const TrsSearchSpace *space,
                                const TrsReservation *reservation, TrsPlanSearch *search);
PetscErrorCode TrsPlanSearchFree(TrsPlanSearch *search);

/* Seconds since some start, monotonic. */
double TrsPlanClock(void);
/* Seconds that this thread, which does all of planning, had a core. */
double TrsPlanCpuClock(void);
