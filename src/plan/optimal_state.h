/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A plan under construction whose critical path is known after every change.

  Loads that are equal on all ranks (uniform options) are scalars; others are arrays over ranks with their maxima.
*/
#pragma once

#include "plan/plan_search.h"

/* The parts of the critical path: the slowest rank counts in each. Exchanges are per module and sharding type. */
enum {
  TRS_PATH_FWD_COMPUTE,
  TRS_PATH_BWD_COMPUTE,
  TRS_PATH_COMMS,
  TRS_N_PATHS = TRS_PATH_COMMS + 2 * TRS_N_MODULES * TRS_N_SHARDINGS
};

typedef struct {
  int world_size, group, n_hosts;
  double *load[TRS_N_PATHS];    /* [W] ms; NULL until the part is in use */
  double most[TRS_N_PATHS];     /* their maxima */
  double uniform[TRS_N_PATHS];  /* ms on every rank */
  double *total, uniform_total; /* [W] all five parts, which is what TorchRec rates */
  double sum_total;             /* over ranks, with the uniform part */
  double rating_limit;          /* total + uniform_total may not exceed it */
  int64_t *hbm, *ddr;           /* [W] left */

  int n_tables;
  const TrsPlanOption **option; /* [n_tables] NULL: not placed */
  int **rank, *capacity;        /* [n_tables] ranks of the shards of an option that is not uniform */
  int most_shards, *trial;      /* of an option; [2 * most_shards] */
  int *n_blocks;                /* [n_hosts] column blocks of the option on trial */

  int64_t work; /* ranks that insertions looked at */

  /* What an insertion looks at. */
  unsigned forbidden;  /* sharding types, a bit each */
  double path_weight;  /* of the critical path: 1, or 0 to look at memory alone */
  double memory_price; /* ms for the memory of one device: full ranks and small options are preferred */
  TrsStorage room;     /* left on the richest device */
} TrsPlanState;

PetscErrorCode TrsPlanStateCreate(const TrsTopology *topology, const TrsSearchSpace *space,
                                  const TrsReservation *reservation, TrsPlanState *state);
PetscErrorCode TrsPlanStateFree(TrsPlanState *state);

/* Put a table's option on given ranks (NULL for a uniform one). Not collective. No check. */
PetscErrorCode TrsPlanStateAdd(TrsPlanState *state, int table, const TrsPlanOption *option, const int *rank);
/* Take a table out. */
void TrsPlanStateRemove(TrsPlanState *state, int table);

/* Take all tables out; loads are exactly zero then. */
void TrsPlanStateClear(TrsPlanState *state);

/* The critical path now, in ms. */
double TrsPlanStatePath(const TrsPlanState *state);

/*
  TrsPlanStateInsert - Put a table, which is out, where it lengthens the critical path least: try each of the options on its best ranks.

  Not collective.
  Out:    placed  false when no option fits; then the table stays out
*/
PetscErrorCode TrsPlanStateInsert(TrsPlanState *state, int table, int n, const TrsPlanOption *option,
                                  PetscBool *placed);
