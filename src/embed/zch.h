/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A bucket of a zero-collision table (table option id_map zch): which id has which of its rows.

  A bucket of Z rows holds up to Z - 1 ids. All other ids share its last row. Every `interval`
  training batches the bucket evicts: the ids of these batches compete with the ids that have rows,
  and the Z - 1 best keep or get a row. Bits depend only on the sequence of the bucket's ids.

  A training batch calls Begin, Find for all its ids, and End. If TrsZchIsDue(), it then calls Evict
  and Find again. An evaluation calls only Find. No MPI, not collective. Two threads must not use
  one bucket at a time, except for Find.

  Source: TorchRec MCHManagedCollisionModule (torchrec.modules.mc_modules). src/RULES.md, rule A32,
          has the differences
*/
#pragma once

#include "embed/directory.h"

typedef struct TrsZchImpl *TrsZch;

/* Create an empty bucket. rule is borrowed; rows Z is at least 1. Errors: MEMORY. */
PetscErrorCode TrsZchCreate(const TrsZchRule *rule, int64_t rows, TrsZch *bucket);
PetscErrorCode TrsZchDestroy(TrsZch *bucket);

/*
  Begin a training batch that has n ids of the bucket. The history has room for 1.25 * interval
  times as many ids as the bucket's first training batch has, at most 2^32 - 1. Further ids are not
  noted. Errors: DATA after 2^32 - 2 batches.
*/
PetscErrorCode TrsZchBegin(TrsZch bucket, int64_t n);

/*
  Find the rows of n ids. An id without a row gets Z - 1. Returns the number of the other ids.
  training: also note these ids for the next eviction. The first of them is id number `place` of the
  batch. After End, Find notes no more ids of the batch.
*/
int64_t TrsZchFind(TrsZch bucket, PetscBool training, int64_t place, int64_t n, const int64_t *ids,
                   int64_t *rows);

/*
  Note the batch's ids that have no row for the next eviction. ids and rows: those of the whole
  batch, as from Find. Errors: MEMORY.
*/
PetscErrorCode TrsZchEnd(TrsZch bucket, const int64_t *ids, const int64_t *rows);

/* Has the interval passed? The batch must then evict. */
PetscBool TrsZchIsDue(TrsZch bucket);

/*
  Evict. *given lists the rows that changed hands, in TorchRec's order, until the next call. Errors:
  MEMORY.
*/
PetscErrorCode TrsZchEvict(TrsZch bucket, TrsGivenRows *given);

/*
  Return the number of rows Z. Return the id of a row; if the row has no id, return 0 and set *held
  to 0, else to 1.
*/
int64_t TrsZchRows(TrsZch bucket);
int64_t TrsZchIdOf(TrsZch bucket, int64_t row, uint8_t *held);

/*
  For lookups only (TrsDirectoryOps.change and copy). `to` must be an empty bucket of as many rows.
  Errors: MEMORY.
*/
PetscErrorCode TrsZchChange(TrsZch bucket, const TrsDirectoryChange *change);
PetscErrorCode TrsZchCopy(const struct TrsZchImpl *bucket, TrsZch to);

/* anew: as in TrsDirectoryOps.count. */
TrsDirectoryCounts TrsZchCount(TrsZch bucket, PetscBool anew);

/* --- the state in checkpoints: TorchRec's arrays, and what TorchRec forgets --- */

/* A bucket's numbers. */
enum {
  TRS_ZCH_ITERATION, /* training batches so far */
  TRS_ZCH_EVICTED,   /* the iteration of the last eviction */
  TRS_ZCH_CAPACITY,  /* ids that the history holds between evictions; -1: no batch so far */
  TRS_ZCH_ROOM,      /* ids that it can still take */
  TRS_ZCH_LARGEST,   /* the row of id 2^63 - 1, whose entry looks empty; -1: it has none */
  TRS_ZCH_NUMBERS
};

/*
  The tensors of a bucket, int64 [Z] each, in the order of raw ids. An empty entry has the id 2^63 -
  1, and so has the last one, which is for ids without a row. NULL: not wanted, or unknown.
*/
typedef struct {
  int64_t *raw, *slot, *count, *last, *times; /* slot: the row, 0 .. Z - 1 */
} TrsZchArrays;

/* An id of the history: how often it came since the last eviction, and the last iteration. */
typedef struct {
  int64_t id, count, last;
} TrsZchSeen;
enum { TRS_ZCH_SEEN_COLUMNS = 3 };

/* Write the state. Errors: MEMORY. */
PetscErrorCode TrsZchGet(TrsZch bucket, int64_t numbers[TRS_ZCH_NUMBERS], const TrsZchArrays *arrays);

/*
  The number of distinct ids of the history, and these in ascending order to seen. Errors: MEMORY.
*/
int64_t TrsZchCountSeen(TrsZch bucket);
PetscErrorCode TrsZchGetSeen(TrsZch bucket, TrsZchSeen *seen);

/*
  Replace the state of the bucket. raw and slot must not be NULL; other arrays that are NULL become
  0. The history becomes seen [n]. If *fault receives something that is wrong, the bucket is
  unusable. Errors: MEMORY.
*/
PetscErrorCode TrsZchSet(TrsZch bucket, const int64_t numbers[TRS_ZCH_NUMBERS], const TrsZchArrays *arrays,
                         int64_t n, const TrsZchSeen *seen, TrsDirectoryFault *fault);
