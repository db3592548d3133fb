/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Chooses the number of copies of all tables (-plan_replicas 0). The best number has the least sum
  of two times: a copy's critical path, and the time to keep the copies equal.

  Source: src/plan/RULES.md, section 13
*/
#pragma once

#include "plan/search/search_space.h"

/* A candidate: a number of copies, and the cost of one copy's plan. */
typedef struct {
  int replicas;
  PetscBool fits;          /* true: there is a plan */
  double path_ms, sync_ms; /* critical path of the plan, and the result of TrsReplicaSync() */
} TrsReplicaCandidate;

enum { TRS_REPLICA_CANDIDATES = 256 }; /* no allowed number of ranks has more divisors than this */

typedef struct {
  int n; /* number of candidates; 0: there is one copy and no choice */
  TrsReplicaCandidate candidate[TRS_REPLICA_CANDIDATES];
} TrsReplicaChoice;

/*
  TrsReplicaCandidates - List the numbers of copies to plan for, in ascending order from 1. A copy
    is either several whole hosts of `host_ranks` ranks, or an equal part of one host. Not
    collective.
*/
void TrsReplicaCandidates(int world_size, int host_ranks, TrsReplicaChoice *choice);

/*
  The candidate with the least time. If times are equal, the candidate with fewer copies. NULL if
  there is no plan for any candidate. Not collective.
*/
const TrsReplicaCandidate *TrsReplicaBest(const TrsReplicaChoice *choice);

/*
  TrsReplicaSync - Compute the slowest rank's time per step for keeping the copies equal.

  Not collective.

  In:     model  must have the topology of one copy
          plan   the plan of one copy
  Out:    ms     0 for a single copy, and for tables that are only read
*/
PetscErrorCode TrsReplicaSync(const TrsCostModel *model, const TrsShardingPlan *plan, double *ms);

/* Add one line per candidate to the text. Not collective. Errors: MEMORY */
PetscErrorCode TrsReplicaChoiceWrite(const TrsCostModel *model, const TrsReplicaChoice *choice,
                                     TrsText *text);
