/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The pairs of shards that have columns of the same rows. An update that needs whole rows exchanges
  row data between such shards (src/RULES.md, rule A12). Internal to shard/.
*/
#pragma once

#include "shard/sharding.h"

/* Rows [begin, end) that two shards of a table, in different column blocks, share. */
typedef struct {
  int64_t begin, end;
  int local;      /* this rank's shard, by its number in the lookup */
  int64_t column; /* first column of the sending shard in the table */
  int64_t width;  /* columns of the sending shard */
} TrsRowsPair;

/*
  The pairs of one direction, sorted by the other rank. On both sides they are sorted by table,
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
  TrsRowsTrafficFind - List the pairs in which this rank's shards send or receive. Only tables with
  an optimizer of whole rows have pairs.

  The lookup must exist. Not collective. Destroy *traffic with TrsRowsTrafficDestroy(), even after
  an error.
*/
PetscErrorCode TrsRowsTrafficFind(TrsSharding sharding, PetscBool outgoing, TrsRowsTraffic *traffic);
PetscErrorCode TrsRowsTrafficDestroy(TrsSharding sharding, TrsRowsTraffic *traffic);

/* Properties of a group's pairs on all ranks. */
typedef struct {
  PetscBool any; /* some rank has a pair */
  /*
    The shards of every pair have the same rows, their columns begin at whole blocks of
    TRS_SQUARES_COLUMNS, and the optimizers need only the sum of a row's squared gradients.
  */
  PetscBool by_squares;
} TrsRowsPairs;

/* Examine the plan's pairs on all ranks. Every rank gets the same result. Not collective. */
TrsRowsPairs TrsRowsPairsOf(TrsSharding sharding);

/* A shard's number in the group's lookup; if it has none, the number of tables. */
int TrsRowsLocalNumber(TrsSharding sharding, int shard);
