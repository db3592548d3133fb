/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Updates of rows that are cut by columns, with -reproducible. Internal to shard/.

  An optimizer that needs whole rows (row-wise statistics, norms) would treat a column shard as a
  table of its own (src/RULES.md, rule A12). Here the ranks that hold a row's columns exchange what
  the optimizer needs, so that all cuts by columns give the bits of the uncut table.

  Two shards that have columns of the same rows are a pair. All shards of a table get the same ids
  in the same order. So both sides of a pair know which rows they share, and their order, without
  communication. cut_rows.c lists the pairs and chooses one of three updates:

    no rank has a pair        the owners' update (sharding.c)
    sums of squares suffice   cut_rows_squares.c: a float for each id and block of columns travels;
                              the owners update their columns in place
    otherwise                 cut_rows_whole.c: the data of touched rows travels; each owner updates
                              the whole rows and keeps its columns
*/
#pragma once

#include "shard/sharding.h"

/* Rows [begin, end) that two shards of a table, in different column blocks, share. */
typedef struct {
  int rank; /* of the other shard */
  int64_t begin, end;
  int local;      /* this rank's shard, by its number in the lookup */
  int64_t column; /* first column of the sending shard in the table */
  int64_t width;  /* columns of the sending shard */
  int64_t at;     /* first unit in the message under way */
} TrsRowsPair;

/*
  The pairs of one direction, sorted by the other rank. On both sides they are sorted by table,
  sending shard, receiving shard.
*/
typedef struct {
  int n;
  TrsRowsPair *pair;
  int64_t *counts, *displs; /* [W] units of the exchange under way */
  TrsDeviceBuffer data;
} TrsRowsTraffic;

/* The part that both updates share. */
typedef struct {
  TrsSharding sharding;
  int n_tables; /* tables of the lookup */
  const TrsTbeTable *table;
  PetscBool *cut;            /* [n_tables] this rank's shard has pairs */
  TrsRowsTraffic send, recv; /* the pairs in which this rank's shards send or receive */
} TrsCutRows;

/*
  TrsCutRowsSetUp - List the pairs of this rank's shards. Only tables with an optimizer of whole
  rows
    have pairs.

  The lookup must exist. Not collective. Destroy *rows with TrsCutRowsDestroy(), even after an
  error.
*/
PetscErrorCode TrsCutRowsSetUp(TrsSharding sharding, TrsCutRows *rows);
PetscErrorCode TrsCutRowsDestroy(TrsCutRows *rows);

/* A shard's number in the group's lookup; if it has none, the number of tables. */
int TrsCutRowsNumber(const TrsCutRows *rows, int shard);

/* The number of units that a pair sends for the batch of the update. */
typedef int64_t TrsRowsPairUnitsFn(const void *update, const TrsRowsPair *pair);

/*
  Set the counts and displacements of both directions and each pair's place, and make room for the
  messages, which have units of `unit` bytes. Not collective. Errors: MEMORY
*/
PetscErrorCode TrsCutRowsReserve(TrsCutRows *rows, int64_t unit, TrsRowsPairUnitsFn *units,
                                 const void *update);

/* Exchange send.data for recv.data, and wait. Collective on the world. */
PetscErrorCode TrsCutRowsExchange(TrsCutRows *rows, TrsStream stream, int64_t unit);

/* The updates that trs_update_cut_rows chooses between, beside the owners'. */
extern const TrsUpdateOps trs_update_cut_squares, trs_update_cut_whole;
