/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A bucket of a table that grows (table option id_map dynamic): which id has which of its rows.

  A bucket of Z rows holds up to Z - 1 ids. Row 0 is for all other ids. A new id gets the lowest
  free row, so the rows in use are rows 0 .. n - 1, with gaps where ids have lost theirs. When no
  row is free, a part of the ids loses theirs by the policy. Time is the number of training batches.
  Bits depend only on the sequence of the bucket's ids.

  A training batch calls Begin, Find and Admit; an evaluation calls only Find. No MPI, not
  collective. Two threads must not use one bucket at a time, except for Find.

  Source: dynamicemb (NVIDIA RecSys Examples) and HugeCTR for the policies; src/RULES.md, rule A33
*/
#pragma once

#include "embed/directory.h"

typedef struct TrsDynamicImpl *TrsDynamic;

/*
  Create an empty bucket. rule is copied; rows Z is at least 2. key: of its random decisions. Memory
  grows with the ids. Errors: MEMORY.
*/
PetscErrorCode TrsDynamicCreate(const TrsDynamicRule *rule, uint64_t key, int64_t rows, TrsDynamic *bucket);
PetscErrorCode TrsDynamicDestroy(TrsDynamic *bucket);

/* Begin a training batch. Ids that are too old lose their rows. Errors: MEMORY. */
PetscErrorCode TrsDynamicBegin(TrsDynamic bucket);

/*
  Find the rows of n ids; 0 if an id has none. training: note that the ids were seen. Returns the
  number of ids that have a row.
*/
int64_t TrsDynamicFind(TrsDynamic bucket, PetscBool training, int64_t n, const int64_t *ids, int64_t *rows);

/*
  Give rows to those of the batch's ids that have none, in their order. rows [n] is the result of
  Find, and receives the new rows. *given lists the new rows until the next call. *n_known grows by
  the number of ids that have a row now and had none. Errors: MEMORY.
*/
PetscErrorCode TrsDynamicAdmit(TrsDynamic bucket, int64_t n, const int64_t *ids, int64_t *rows,
                               int64_t *n_known, TrsGivenRows *given);

/* anew: as in TrsDirectoryOps.count. */
/*
  List the rows that have lost their ids since the last call and have no new ids, until the next
  call. Errors: MEMORY.
*/
PetscErrorCode TrsDynamicGaps(TrsDynamic bucket, TrsGivenRows *gaps);

TrsDirectoryCounts TrsDynamicCount(TrsDynamic bucket, PetscBool anew);

/*
  For lookups only (TrsDirectoryOps.change and copy). A row that gets an id was last seen in the
  last of the batches. `to` must be an empty bucket of as many rows. Errors: MEMORY.
*/
PetscErrorCode TrsDynamicChange(TrsDynamic bucket, const TrsDirectoryChange *change);
PetscErrorCode TrsDynamicCopy(const struct TrsDynamicImpl *bucket, TrsDynamic to);

/* --- the state in checkpoints --- */

/* A bucket's numbers. */
enum {
  TRS_DYNAMIC_USED, /* rows in use, row 0 and gaps included */
  TRS_DYNAMIC_TIME, /* training batches so far */
  TRS_DYNAMIC_AGED, /* occurrences that the sketch has counted since its counters were halved */
  TRS_DYNAMIC_NUMBERS
};

/* The id of a row in use. last 0: none. */
typedef struct {
  int64_t id, last, count;
} TrsDynamicRow;

/* A counter of the sketch. */
typedef struct {
  int64_t bucket, cell, count;
} TrsDynamicCell;

enum { TRS_DYNAMIC_ROW_COLUMNS = 3 }; /* of lists of TrsDynamicRow and TrsDynamicCell */

void TrsDynamicNumbers(TrsDynamic bucket, int64_t number[TRS_DYNAMIC_NUMBERS]);

/* Write rows first .. first + n - 1 of the rows in use. */
void TrsDynamicRows(TrsDynamic bucket, int64_t first, int64_t n, TrsDynamicRow *rows);

/* The ids that are counted until they get a row, by id; and their number. Errors: MEMORY. */
int64_t TrsDynamicCountCandidates(TrsDynamic bucket);
PetscErrorCode TrsDynamicCandidates(TrsDynamic bucket, TrsDynamicRow *candidates);

/* The sketch's counters that are not 0, and their number. */
int64_t TrsDynamicCountCells(TrsDynamic bucket);
void TrsDynamicCells(TrsDynamic bucket, int64_t number, TrsDynamicCell *cells);

/* The state of a bucket, from a checkpoint. */
typedef struct {
  int64_t number[TRS_DYNAMIC_NUMBERS];
  int64_t n_rows; /* ids with a row: row[i] becomes row place[i], at least 1 */
  const TrsDynamicRow *row;
  const int64_t *place;
  int64_t n_candidates, n_cells;
  const TrsDynamicRow *candidate;
  const TrsDynamicCell *cell;
} TrsDynamicState;

/*
  Replace the state of an empty bucket. If *fault receives something that is wrong, the bucket is
  unusable. Errors: MEMORY.
*/
PetscErrorCode TrsDynamicSet(TrsDynamic bucket, const TrsDynamicState *state, TrsDirectoryFault *fault);
