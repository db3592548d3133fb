/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The pairs of shards that have columns of the same rows. An update that takes a row as a whole
  exchanges data of the rows between such shards (src/RULES.md, rule A12). Internal to shard/.
*/
#pragma once

#include "shard/sharding.h"

/* Rows [begin, end) that two shards of a table, in different column blocks, have in common. */
typedef struct {
  int64_t begin, end;
  int local;      /* the lookup's number of this rank's shard */
  int64_t column; /* first column of the sending shard in the table */
  int64_t width;  /* columns of the sending shard */
} TrsRowsPair;

/*
  The pairs of one direction, sorted by the other rank. Both sides have them in order of table,
  sending shard, receiving shard.
*/
typedef struct {
  int n;
  TrsRowsPair *pair;
  int *first;               /* [W + 1] first pair of each rank */
  int64_t *counts, *displs; /* [W] units of the exchange under way */
  TrsDeviceBuffer data;
} TrsRowsTraffic;

/*
  TrsRowsTrafficFind - List the pairs in which this rank's shards send or receive: those of the
  group's tables with an optimizer of whole rows.

  The lookup must be made. Not collective. Destroy *traffic with TrsRowsTrafficDestroy(), even after
  an error.
*/
PetscErrorCode TrsRowsTrafficFind(TrsSharding sharding, PetscBool outgoing, TrsRowsTraffic *traffic);
PetscErrorCode TrsRowsTrafficDestroy(TrsSharding sharding, TrsRowsTraffic *traffic);

/* What all ranks' pairs of a group have in common. */
typedef struct {
  PetscBool any; /* some rank has a pair */
  /*
    The shards of every pair have the same rows, their columns begin at whole blocks of
    TRS_SQUARES_COLUMNS, and the optimizers need no more of a row than the sum of its squared
    gradients.
  */
  PetscBool by_squares;
} TrsRowsPairs;

/* Look at the plan's pairs of all ranks. Every rank gets the same. Not collective. */
TrsRowsPairs TrsRowsPairsOf(TrsSharding sharding);

/* The number that the group's lookup gives to a shard of this rank; its number of tables: none. */
int TrsRowsLocalNumber(TrsSharding sharding, int shard);
