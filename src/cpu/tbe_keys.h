/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The keys of a backward on the CPU: the occurrences of each table's rows, in order of feature, bag
  and place, with those of a row brought together. Internal to compute/.
*/
#pragma once

#include "compute/compute_ops.h"
#include "cpu/row_sort.h"

/* One table's part of the occurrences, by row. */
typedef struct {
  /*
    Index and number of its keys among those of all tables. In the end n leaves out ids that are not
    rows.
  */
  int64_t begin, n;
  int position_bits;
  const uint64_t *key;          /* brought together by row */
  const int64_t *source;        /* as TrsRowJob's */
  int64_t grad_at, grad_stride; /* without source: where position 0 has its gradient; else 0 */
  const float *scale;           /* factors of the gradients, in the order of key; NULL: all 1 */
  /* locations of the rows of a cached table, in the order of key; else NULL */
  const int32_t *location;
} TrsTableRun;

/* Views of the workspace of a backward. N: values of the largest group. */
typedef struct {
  int64_t n, first;        /* N; where the group's keys begin among all keys */
  uint64_t *key, *scratch; /* [N] */
  uint32_t *seen;          /* [N] scratch of TrsRowGroup() */
  int64_t *source;         /* [N] by position within the table's list */
  float *scale;            /* [2 * N] by position, then by key; NULL: all 1 */
  int32_t *location;       /* [2 * N] as scale; NULL: no table is cached */
  TrsRowOrder order;
  TrsTableRun *run;          /* [n_tables] */
  int64_t widest;            /* columns of the widest table; 0: the stack has room for all rows */
  float *wide;               /* [threads, 3 * widest] */
  float *const *row_squares; /* as TrsTbeInput's, or NULL */
} TrsTbeKeys;

/*
  Make room for the keys of n values, all in `workspace`. scaled: gradients have factors. cached:
  rows have locations. Not collective. Errors: MEMORY
*/
PetscErrorCode TrsTbeKeysReserve(TrsWorkspace workspace, const TrsTbe *tbe, int64_t n, PetscBool scaled,
                                 PetscBool cached, TrsTbeKeys *keys);

/*
  Divide the keys of a batch among the tables, and make room for those of the largest group of
  tables. pooled: the ids of a bag share a gradient; else gradient row i belongs to values[i]. Not
  collective. Errors: MEMORY
*/
PetscErrorCode TrsTbeKeysBegin(TrsWorkspace workspace, const TrsTbe *tbe, const TrsTbeInput *input,
                               PetscBool pooled, TrsTbeKeys *keys);

/*
  List the keys of the group of tables that begins with table t: run[t] and those up to the table
  after the group, which is returned. Gradient rows are grad_stride apart. Not collective.
*/
int TrsTbeKeysGroup(const TrsTbe *tbe, const TrsTbeInput *input, int t, PetscBool pooled, int64_t grad_stride,
                    TrsTbeKeys *keys);
