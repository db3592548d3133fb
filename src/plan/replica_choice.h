/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The number of copies of all tables (-plan_replicas 0): the plan of one copy and the time in which
  the copies are kept equal, together, are shortest.

  Source: src/plan/RULES.md, section 13
*/
#pragma once

#include "plan/search_space.h"

/* A number of copies, and the plan of one of them. */
typedef struct {
  int replicas;
  PetscBool fits;          /* there is a plan */
  double path_ms, sync_ms; /* the plan's critical path; TrsReplicaSync() */
} TrsReplicaCandidate;

enum { TRS_REPLICA_CANDIDATES = 256 }; /* no number of ranks that can be given has more divisors */

typedef struct {
  int n; /* 0: there is a single copy */
  TrsReplicaCandidate candidate[TRS_REPLICA_CANDIDATES];
} TrsReplicaChoice;

/*
  TrsReplicaCandidates - List the numbers of copies that are worth a plan: a copy has whole hosts of
    `host_ranks` ranks, or equal parts of a host. From 1 on, upwards. Not collective.
*/
void TrsReplicaCandidates(int world_size, int host_ranks, TrsReplicaChoice *choice);

/* The candidate with the shortest time, the one with fewer copies of equals; NULL: none fits. Not
   collective. */
const TrsReplicaCandidate *TrsReplicaBest(const TrsReplicaChoice *choice);

/*
  TrsReplicaSync - The time per step, of the slowest rank, in which the copies are kept equal.

  Not collective.

  In:     model  its topology is that of a copy
          plan   of a copy
  Out:    ms     0 for a single copy, and for tables that are only read
*/
PetscErrorCode TrsReplicaSync(const TrsCostModel *model, const TrsShardingPlan *plan, double *ms);

/* Add a line for each candidate. Not collective. Errors: MEMORY */
PetscErrorCode TrsReplicaChoiceWrite(const TrsCostModel *model, const TrsReplicaChoice *choice,
                                     TrsText *text);
