/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Computes a lower bound on the critical path of all plans in a box. A box holds the plans whose
  longest load in each part of the path lies between two numbers.

  The path is a sum over parts. A part counts the load of its slowest rank, plus the load that
  uniform options add to every rank. In a box, part p counts at least lo[p] and at least its mean
  over ranks, and no shard is longer than hi[p]. The remaining problem is to choose one option per
  table, with limits on total memory and on the packing into a rank. Subgradient steps (Polyak 1969)
  raise the Lagrangian dual of this choice (Fisher, Management Science 27(1), 1981). The dual
  feasible functions u(k) by Fekete and Schepers (Math. Programming 91, 2001) count the packing: a
  rank takes one shard above 1/2 of its capacity, two above 1/3, and so on, in memory and in each
  part of the path.
*/
#pragma once

#include "plan/cost/storage_reservation.h"
#include "plan/search/search_space.h"

enum {
  TRS_BOUND_PARTS = 2 + 2 * TRS_N_MODULES * TRS_N_SHARDINGS,
  TRS_BOUND_MEMORY = 5, /* sums of device and host memory, and u(1) to u(3) for device memory */
  TRS_BOUND_PACKS = 2,  /* u(1) and u(2) for each part */
  TRS_BOUND_ROWS = TRS_BOUND_MEMORY + TRS_BOUND_PACKS * TRS_BOUND_PARTS
};

/* An option's properties for the dual. */
typedef struct {
  const TrsPlanOption *option;
  int n_parts, part[4]; /* 0 parts for a uniform option; numbered as in the dual */
  double ms[4];         /* ms per shard */
  double longest[4];    /* ms that some rank certainly has; more than ms if shards must meet */
  double mean[4];       /* mean over ranks */
  double fixed;         /* ms that a uniform option adds to the path */
  double n_shards, memory[TRS_BOUND_MEMORY]; /* as a share of the available memory */
} TrsBoundChoice;

typedef struct {
  int n_tables, n_parts, world_size;
  int *first; /* [n_tables + 1] */
  TrsBoundChoice *choice;
  double upper_ms; /* only plans with a shorter path are of interest */
  double end_s;    /* time limit for the steps, by TrsPlanCpuClock() */
} TrsBoundProblem;

typedef struct {
  double lo[TRS_BOUND_PARTS], hi[TRS_BOUND_PARTS];
  double bound_ms; /* HUGE_VAL: the box has no plan below upper_ms */
  /* The dual's multipliers in ms: weights of the parts' means, prices of memory and packing. */
  double weight[TRS_BOUND_PARTS], price[TRS_BOUND_ROWS];
  uint64_t *excluded; /* [choices / 64] choices that no plan below upper_ms in the box has */
  /* The part by which to split the box, and the value to split at. */
  int part;
  double at;
} TrsBoundBox;

/* Create the problem. Not collective. Free it with TrsBoundProblemFree(). */
PetscErrorCode TrsBoundProblemCreate(const TrsTopology *topology, const TrsSearchSpace *space,
                                     const TrsReservation *reservation, double upper_ms, double end_s,
                                     TrsBoundProblem *problem);
PetscErrorCode TrsBoundProblemFree(TrsBoundProblem *problem);

/*
  TrsBoundRaise - Raise a box's bound in n_steps steps, or fewer (at least one) if the time ends.

  Not collective.

  InOut:  box     all fields except part and at are read; multipliers, bound and excluded choices
                  are improved; part and at are set
  Out:    wanted  [n_tables] the options with the least value; the caller may pass NULL
          work    number of choices looked at
*/
PetscErrorCode TrsBoundRaise(const TrsBoundProblem *problem, int n_steps, TrsBoundBox *box,
                             const TrsPlanOption **wanted, int64_t *work);
