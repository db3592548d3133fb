/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Chooses the number of copies of all tables (-plan_replicas 0): the number with the least sum of a
  copy's critical path and the time to keep the copies equal.

  Source: src/plan/RULES.md, section 13
*/
#pragma once

#include "plan/search_space.h"

/* A number of copies, and the cost of a copy's plan. */
typedef struct {
  int replicas;
  PetscBool fits;          /* there is a plan */
  double path_ms, sync_ms; /* the plan's critical path; TrsReplicaSync() */
} TrsReplicaCandidate;

enum { TRS_REPLICA_CANDIDATES = 256 }; /* no allowed number of ranks has more divisors */

typedef struct {
  int n; /* 0: there is a single copy */
  TrsReplicaCandidate candidate[TRS_REPLICA_CANDIDATES];
} TrsReplicaChoice;

/*
  TrsReplicaCandidates - List the numbers of copies to plan for, in ascending order from 1. A copy
    consists of whole hosts of `host_ranks` ranks, or is an equal part of a host. Not collective.
*/
void TrsReplicaCandidates(int world_size, int host_ranks, TrsReplicaChoice *choice);

/*
  The candidate with the least time, at equal times the one with fewer copies. NULL if none fits.
  Not collective.
*/
const TrsReplicaCandidate *TrsReplicaBest(const TrsReplicaChoice *choice);

/*
  TrsReplicaSync - The slowest rank's time per step to keep the copies equal.

  Not collective.

  In:     model  with the topology of one copy
          plan   the plan of one copy
  Out:    ms     0 for a single copy, and for tables that are only read
*/
PetscErrorCode TrsReplicaSync(const TrsCostModel *model, const TrsShardingPlan *plan, double *ms);

/* Add a line for each candidate. Not collective. Errors: MEMORY */
PetscErrorCode TrsReplicaChoiceWrite(const TrsCostModel *model, const TrsReplicaChoice *choice,
                                     TrsText *text);
