/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A lower bound of the critical path of all plans in a box: plans whose longest load in each part of the path lies between two numbers.

  The path is the sum over parts of the load of the slowest rank in the part, and what uniform options add to every rank. In a box the load of
  part p counts at least lo[p] and at least its mean over ranks, and no shard is longer than hi[p]. All that remains is the choice of one
  option a table, under sums of memory and of what packs into a rank; its Lagrangian dual (Fisher, Management Science 27(1), 1981) is
  raised by subgradient steps (Polyak 1969). What packs into a rank is counted by the dual feasible functions u(k) of Fekete and
  Schepers (Math. Programming 91, 2001): of shards above 1/2 of what a rank holds it takes one, above 1/3 two, and so on, in memory and
  in each part of the path.
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

/* What the dual needs of an option. */
typedef struct {
  const TrsPlanOption *option;
  int n_parts, part[4]; /* none of a uniform option; in the dual's own numbers */
  double ms[4];         /* of a shard */
  double longest[4];    /* of a rank for certain: more shards than ranks to take them meet */
  double mean[4];       /* over ranks */
  double fixed;         /* ms that a uniform option adds to the path */
  double n_shards, memory[TRS_BOUND_MEMORY]; /* over what there is */
} TrsBoundChoice;

typedef struct {
  int n_tables, n_parts, world_size;
  int *first; /* [n_tables + 1] */
  TrsBoundChoice *choice;
  double upper_ms; /* of interest are plans below */
} TrsBoundProblem;

typedef struct {
  double lo[TRS_BOUND_PARTS], hi[TRS_BOUND_PARTS];
  double bound_ms; /* HUGE_VAL: no plan below upper_ms is in the box */
  double weight[TRS_BOUND_PARTS],
      price[TRS_BOUND_ROWS]; /* of the dual: parts' means, memory and packing; ms */
  uint64_t *excluded;        /* [choices / 64] choices that no such plan has */
  /* What to split the box by: a part, and where. */
  int part;
  double at;
} TrsBoundBox;

/* Not collective. Free with TrsBoundProblemFree(). */
PetscErrorCode TrsBoundProblemCreate(const TrsTopology *topology, const TrsSearchSpace *space,
                                     const TrsReservation *reservation, double upper_ms,
                                     TrsBoundProblem *problem);
PetscErrorCode TrsBoundProblemFree(TrsBoundProblem *problem);

/*
  TrsBoundRaise - Raise a box's bound in some steps.

  Not collective.
  InOut:  box  all but part and at are read; multipliers, bound and excluded choices get better; part and at are set
  Out:    wanted  [n_tables] the options of least value, or NULL
          work    choices looked at
*/
PetscErrorCode TrsBoundRaise(const TrsBoundProblem *problem, int n_steps, TrsBoundBox *box,
                             const TrsPlanOption **wanted, int64_t *work);
