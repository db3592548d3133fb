/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The keys of a backward on the CPU: the occurrences of each table's rows, in order of feature, bag
  and position, grouped by row. Internal to cpu/.
*/
#pragma once

#include "compute/compute_ops.h"
#include "cpu/row_sort.h"

/* One table's occurrences, grouped by row. */
typedef struct {
  /*
    The table's first key among the keys of all tables, and its number of keys. Once listed, n
    excludes ids that are not rows.
  */
  int64_t begin, n;
  int position_bits;
  const uint64_t *key;   /* grouped by row */
  const int64_t *source; /* as in TrsRowJob */
  /* grad_at: without source, index of position 0's gradient; else 0 */
  int64_t grad_at, grad_stride;
  const float *scale; /* factors of the gradients, by key; NULL: all 1 */
  /* locations of a cached table's rows, by key; else NULL */
  const int32_t *location;
} TrsTableRun;

/* A backward's arrays, in its workspace. N: values of the largest group. */
typedef struct {
  int64_t n, first;        /* N; first: index of the group's first key among all keys */
  uint64_t *key, *scratch; /* [N] */
  uint32_t *seen;          /* [N] scratch of TrsRowGroup() */
  int64_t *source;         /* [N] by position within the table's list */
  float *scale;            /* [2 * N] by position, then by key; NULL: all 1 */
  int32_t *location;       /* [2 * N] like scale; NULL: no table is cached */
  TrsRowOrder order;
  TrsTableRun *run;          /* [n_tables] */
  int64_t widest;            /* columns of the widest table; 0: all rows fit on the stack */
  float *wide;               /* [threads, 3 * widest] */
  float *const *row_squares; /* as in TrsTbeInput, or NULL */
} TrsTbeKeys;

/*
  Make room for the keys of n values, all in `workspace`. scaled: gradients have factors. cached:
  rows have locations. Not collective. Errors: MEMORY
*/
PetscErrorCode TrsTbeKeysReserve(TrsWorkspace workspace, const TrsTbe *tbe, int64_t n, PetscBool scaled,
                                 PetscBool cached, TrsTbeKeys *keys);

/*
  Divide the keys of a batch among the tables, and make room for the largest group of tables.
  pooled: the ids of a bag share a gradient; else gradient row i belongs to values[i]. Not
  collective. Errors: MEMORY
*/
PetscErrorCode TrsTbeKeysBegin(TrsWorkspace workspace, const TrsTbe *tbe, const TrsTbeInput *input,
                               PetscBool pooled, TrsTbeKeys *keys);

/*
  List the keys of the group of tables that begins with table t. Returns the table after the group.
  Gradient rows are grad_stride apart. Not collective.
*/
int TrsTbeKeysGroup(const TrsTbe *tbe, const TrsTbeInput *input, int t, PetscBool pooled, int64_t grad_stride,
                    TrsTbeKeys *keys);
