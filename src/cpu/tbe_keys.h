/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The keys of a backward on the CPU: the occurrences of each table's rows, in the order of features,
  bags and positions, and grouped by row. Internal to cpu/.
*/
#pragma once

#include "compute/compute_ops.h"
#include "cpu/row_sort.h"

/* The occurrences of one table's rows, grouped by row. */
typedef struct {
  /*
    The index of the table's first key among the keys of all tables, and its number of keys. After
    the table was listed, ids that are not rows are not counted.
  */
  int64_t begin, n;
  int position_bits;
  const uint64_t *key;   /* grouped by row */
  const int64_t *source; /* as in TrsRowJob */
  /* grad_at is the index of the gradient for position 0 if source is NULL, and otherwise 0 */
  int64_t grad_at, grad_stride;
  const float *scale; /* factors of the gradients, as in TrsRowJob */
  /* locations of the rows, by key; NULL if the table is not cached */
  const int32_t *location;
} TrsTableRun;

/*
  A backward's arrays, in its workspace. N is the number of values of the largest group of tables.
*/
typedef struct {
  int64_t n, first;        /* N; index of the group's first key among all keys */
  uint64_t *key, *scratch; /* [N] */
  uint32_t *seen;          /* [N] scratch of TrsRowGroup() */
  int64_t *source;         /* [N] by position in the table's list */
  float *scale;            /* [2 * N] by position, then by key; NULL if all factors are 1 */
  int32_t *location;       /* [2 * N] by position, then by key; NULL if no table is cached */
  TrsRowOrder order;
  TrsTableRun *run; /* [n_tables] */
  /* number of columns of the widest table; 0 if all rows fit on the stack */
  int64_t widest;
  float *wide;               /* [threads, 3 * widest] scratch of the threads */
  float *const *row_squares; /* as in TrsTbeInput; may be NULL */
} TrsTbeKeys;

/*
  Allocate memory for the keys of n values in `workspace`. scaled: gradients have factors. cached:
  rows have locations. Not collective. Errors: MEMORY
*/
PetscErrorCode TrsTbeKeysReserve(TrsWorkspace workspace, const TrsTbe *tbe, int64_t n, PetscBool scaled,
                                 PetscBool cached, TrsTbeKeys *keys);

/*
  Divide a batch's keys among the tables, and allocate memory for the largest group of tables. If
  `pooled` is set, the ids of a bag share a gradient; if not, gradient row i belongs to values[i].
  Not collective. Errors: MEMORY
*/
PetscErrorCode TrsTbeKeysBegin(TrsWorkspace workspace, const TrsTbe *tbe, const TrsTbeInput *input,
                               PetscBool pooled, TrsTbeKeys *keys);

/*
  List the keys of the group of tables that begins with table t. Returns the first table after the
  group. grad_stride is the distance from one gradient row to the next. Not collective.
*/
int TrsTbeKeysGroup(const TrsTbe *tbe, const TrsTbeInput *input, int t, PetscBool pooled, int64_t grad_stride,
                    TrsTbeKeys *keys);
