/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The softmax of queries among candidates, on tiles of a matrix of scores (the kernels pair_list,
  pair_queries and pair_candidates of compute/compute_ops.h).

  Query i and candidate i are a pair. Its loss is -log of the softmax of its own score among those
  of all candidates, but for accidental hits: other places of the batch that hold the pair's
  candidate. A score is corrected by the log of the candidate's frequency.

  Source: Yi et al. 2019, Sampling-bias-corrected neural modeling for large corpus item
          recommendations; src/RULES.md, section 20
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* A pair of the batch. */
typedef struct {
  int64_t id;       /* of the candidate; negative: it has none, and is no accidental hit */
  float weight;     /* of the query in the loss; 0: the pair is only a candidate */
  float log_q;      /* log of the candidate's frequency; 0: no correction */
  int32_t negative; /* whether the candidate is one of other queries, too */
  int32_t unused;
} TrsPair;

/* Rows first .. first + n - 1 of the matrix of all pairs' scores, m columns. */
typedef struct {
  int64_t first, n, m;
  const TrsPair *pair; /* [m] all pairs of the batch */
  float *z;            /* [n, m] scores, which become gradients of the scores */
  double *log_sum;     /* log of the sum of a query's exponentials */
  double *row_loss;    /* [n] scratch */
  float scale;         /* of the gradients */
} TrsPairTile;

/*
  TrsPairPlace - How many of n candidates come before candidate `own` for a query: those of a higher
    score, and of an equal one those with a smaller number.

  Not collective. Scores are summed in double in a fixed order, so that the result depends on the
  rows alone. In: D columns of the query and of a candidate's row.
*/
int64_t TrsPairPlace(int64_t D, const float *query, int64_t n, const float *candidates, int64_t own);
