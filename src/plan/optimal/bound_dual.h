/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A lower bound of the critical path of all plans in a box. A box holds the plans whose longest load
  in each part of the path lies between two numbers.

  The path is a sum over parts. A part counts the load of its slowest rank, and what uniform options
  add to every rank. In a box the load of part p counts at least lo[p] and at least its mean over
  ranks, and no shard is longer than hi[p]. Only the choice of one option for each table remains,
  under sums of memory and sums of what packs into a rank. The Lagrangian dual of this choice
  (Fisher, Management Science 27(1), 1981) is raised by subgradient steps (Polyak 1969). Packing
  into a rank is counted by the dual feasible functions u(k) of Fekete and Schepers (Math.
  Programming 91, 2001): a rank takes one shard above 1/2 of its capacity, two above 1/3, and so on,
  in memory and in each part of the path.
*/
#pragma once

#include "plan/search_space.h"
#include "plan/storage_reservation.h"

enum {
  TRS_BOUND_PARTS = 2 + 2 * TRS_N_MODULES * TRS_N_SHARDINGS,
  TRS_BOUND_MEMORY = 5, /* sums of device and host memory, and u(1) to u(3) of device memory */
  TRS_BOUND_PACKS = 2,  /* u(1) and u(2) of each part */
  TRS_BOUND_ROWS = TRS_BOUND_MEMORY + TRS_BOUND_PACKS * TRS_BOUND_PARTS
};

/* The properties of an option that the dual needs. */
typedef struct {
  const TrsPlanOption *option;
  int n_parts, part[4]; /* 0 parts for a uniform option; numbered as in the dual */
  double ms[4];         /* ms of a shard */
  double longest[4];    /* ms of a rank for certain, because more shards than ranks meet */
  double mean[4];       /* mean over ranks */
  double fixed;         /* ms that a uniform option adds to the path */
  double n_shards, memory[TRS_BOUND_MEMORY]; /* as a share of the available memory */
} TrsBoundChoice;

typedef struct {
  int n_tables, n_parts, world_size;
  int *first; /* [n_tables + 1] */
  TrsBoundChoice *choice;
  double upper_ms; /* plans below this path are of interest */
  double end_s;    /* time limit of the steps, by TrsPlanCpuClock() */
} TrsBoundProblem;

typedef struct {
  double lo[TRS_BOUND_PARTS], hi[TRS_BOUND_PARTS];
  double bound_ms; /* HUGE_VAL if no plan below upper_ms is in the box */
  /* Multipliers of the dual in ms: weights of the parts' means, prices of memory and packing. */
  double weight[TRS_BOUND_PARTS], price[TRS_BOUND_ROWS];
  uint64_t *excluded; /* [choices / 64] choices that no such plan has */
  /* The part to split the box by, and the value to split it at. */
  int part;
  double at;
} TrsBoundBox;

/* Create the problem. Not collective. Free it with TrsBoundProblemFree(). */
PetscErrorCode TrsBoundProblemCreate(const TrsTopology *topology, const TrsSearchSpace *space,
                                     const TrsReservation *reservation, double upper_ms, double end_s,
                                     TrsBoundProblem *problem);
PetscErrorCode TrsBoundProblemFree(TrsBoundProblem *problem);

/*
  TrsBoundRaise - Raise a box's bound in some steps, fewer where the time ends; at least one.

  Not collective.
  InOut:  box  all but part and at are read; multipliers, bound and excluded choices get better;
               part and at are set
  Out:    wanted  [n_tables] the options of least value, or NULL
          work    choices looked at
*/
PetscErrorCode TrsBoundRaise(const TrsBoundProblem *problem, int n_steps, TrsBoundBox *box,
                             const TrsPlanOption **wanted, int64_t *work);
