/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Updates of rows whose columns are cut, with -reproducible. Internal to shard/.

  An optimizer that needs whole rows (row-wise statistics, norms) would treat a column shard as a
  separate table (src/RULES.md, rule A12). Here the ranks that hold a row's columns exchange the
  data that the optimizer needs. The results are then equal bit for bit to those of the uncut table.

  Two shards that have different columns of the same rows are a pair. All shards of a table get the
  same ids in the same order. Both sides of a pair therefore know their common rows, and the order
  of these rows, without communication. cut_rows.c lists the pairs and chooses one of three updates:

    no rank has a pair        the owners' update (sharding.c)
    sums of squares suffice   cut_rows_squares.c: one float for each id and block of columns is
                              sent; the owners update their columns in place
    otherwise                 cut_rows_whole.c: the data of touched rows is sent; each owner updates
                              the whole rows and keeps its columns
*/
#pragma once

#include "shard/sharding.h"

/*
  A pair as one rank sees it. Two shards of a table, in different column blocks, both have rows
  [begin, end).
*/
typedef struct {
  int rank; /* the rank of the other shard */
  int64_t begin, end;
  int local;      /* index of this rank's shard in the lookup */
  int64_t column; /* first column of the sending shard in the table */
  int64_t width;  /* number of columns of the sending shard */
  int64_t at;     /* index of the pair's first unit in the current message */
} TrsRowsPair;

/*
  The pairs of one direction, sorted by the rank of the other shard. Pairs with the same rank are
  sorted by table, sending shard and receiving shard, so both ranks have the same order.
*/
typedef struct {
  int n;
  TrsRowsPair *pair;
  int64_t *counts, *displs; /* [W] numbers of units in the current exchange */
  TrsDeviceBuffer data;
} TrsRowsTraffic;

/* The data that both updates of cut rows use. */
typedef struct {
  TrsSharding sharding;
  int n_tables; /* number of tables of the lookup */
  const TrsTbeTable *table;
  PetscBool *cut; /* [n_tables] true: this rank's shard of the table has pairs */
  /* the pairs in which this rank's shards send, and in which they receive */
  TrsRowsTraffic send, recv;
} TrsCutRows;

/*
  TrsCutRowsSetUp - List the pairs of this rank's shards. Only tables whose optimizer needs whole
    rows have pairs.

  The lookup must exist. Not collective. Destroy *rows with TrsCutRowsDestroy(), even after an
  error.
*/
PetscErrorCode TrsCutRowsSetUp(TrsSharding sharding, TrsCutRows *rows);
PetscErrorCode TrsCutRowsDestroy(TrsCutRows *rows);

/*
  The index of a shard in the group's lookup. If the lookup does not have it, the number of tables.
*/
int TrsCutRowsNumber(const TrsCutRows *rows, int shard);

/* A function that returns the number of units that a pair sends for the batch of the update. */
typedef int64_t TrsRowsPairUnitsFn(const void *update, const TrsRowsPair *pair);

/*
  Set the counts and displacements for sending and receiving, and each pair's position in the
  messages. Also allocate memory for the messages, which have units of `unit` bytes. Not collective.
  Errors: MEMORY
*/
PetscErrorCode TrsCutRowsReserve(TrsCutRows *rows, int64_t unit, TrsRowsPairUnitsFn *units,
                                 const void *update);

/* Send send.data, receive recv.data, and wait for both. Collective on the world. */
PetscErrorCode TrsCutRowsExchange(TrsCutRows *rows, TrsStream stream, int64_t unit);

/* The updates among which trs_update_cut_rows chooses, in addition to the owners' update. */
extern const TrsUpdateOps trs_update_cut_squares, trs_update_cut_whole;
