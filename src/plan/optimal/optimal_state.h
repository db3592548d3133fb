/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A plan under construction. Its critical path is known after every change. Loads that are equal on
  all ranks (uniform options) are scalars; other loads are arrays over ranks with their maxima.
*/
#pragma once

#include "plan/search/plan_search.h"

/*
  The parts of the critical path. Each part counts its slowest rank. Exchanges have a part for each
  direction, module and sharding type.
*/
enum {
  TRS_PATH_FWD_COMPUTE,
  TRS_PATH_BWD_COMPUTE,
  TRS_PATH_COMMS,
  TRS_N_PATHS = TRS_PATH_COMMS + 2 * TRS_N_MODULES * TRS_N_SHARDINGS
};

typedef struct {
  int world_size, group, n_hosts;
  double *load[TRS_N_PATHS];    /* [W] ms; NULL until the part is in use */
  double most[TRS_N_PATHS];     /* maxima of the loads */
  double uniform[TRS_N_PATHS];  /* ms on every rank */
  double *total, uniform_total; /* [W] sums of the five perf parts, as in TorchRec's rating */
  double sum_total;             /* sum over ranks, including the uniform part */
  double rating_limit;          /* total + uniform_total must not exceed this */
  int64_t *hbm, *ddr;           /* [W] memory left */
  const TrsStorage *room_of;    /* [W] memory without any table; borrowed */

  int n_tables;
  const TrsPlanOption **option; /* [n_tables] NULL: not placed */
  /* [n_tables] ranks of a non-uniform option's shards */
  int **rank, *capacity;
  int most_shards, *trial; /* most_shards: maximum over options; trial: [2 * most_shards] */
  int *n_blocks;           /* [n_hosts] column blocks of the option on trial */

  int64_t work; /* number of ranks that insertions looked at */

  /* The goal of an insertion. */
  unsigned forbidden; /* sharding types, one bit each */
  double path_weight; /* weight of the critical path: 1, or 0 to consider only memory */
  /* Price in ms of a device's memory. A positive price makes insertions prefer full ranks and small
     options. */
  double memory_price;
  TrsStorage room; /* the most memory left on a device */
} TrsPlanState;

PetscErrorCode TrsPlanStateCreate(const TrsTopology *topology, const TrsSearchSpace *space,
                                  const TrsReservation *reservation, TrsPlanState *state);
PetscErrorCode TrsPlanStateFree(TrsPlanState *state);

/* Place a table's option on the given ranks (NULL for a uniform option), without checks. Not
   collective. */
PetscErrorCode TrsPlanStateAdd(TrsPlanState *state, int table, const TrsPlanOption *option, const int *rank);
/* Take a table out. */
void TrsPlanStateRemove(TrsPlanState *state, int table);

/* Take all tables out. Sets all loads to exactly zero. */
void TrsPlanStateClear(TrsPlanState *state);

/* The current critical path, in ms. */
double TrsPlanStatePath(const TrsPlanState *state);
/* The slowest rank's total over the five perf parts, in ms: TorchRec's rating. */
double TrsPlanStateRating(const TrsPlanState *state);

/*
  TrsPlanStateInsert - Insert a table where it lengthens the critical path least.

  Tries each option on its best ranks. The table must be out. Not collective.

  Out:    placed  false if no option fits; the table then stays out
*/
PetscErrorCode TrsPlanStateInsert(TrsPlanState *state, int table, int n, const TrsPlanOption *option,
                                  PetscBool *placed);
