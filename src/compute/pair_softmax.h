/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The softmax of queries among candidates, on tiles of a matrix of scores (the kernels pair_list,
  pair_queries and pair_candidates of compute/compute_ops.h).

  Query i and candidate i are a pair. Its loss is -log of the softmax of its own score among the
  scores of all candidates except accidental hits, which are other positions in the batch with the
  pair's candidate. Each score is corrected by the log of the candidate's frequency.

  Source: Yi et al. 2019, Sampling-bias-corrected neural modeling for large corpus item
          recommendations; src/RULES.md, section 20
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* A pair of the batch. */
typedef struct {
  int64_t id;       /* the candidate's id; negative: no id, so never an accidental hit */
  float weight;     /* the query's weight in the loss; 0: the pair is only a candidate */
  float log_q;      /* log of the candidate's frequency; 0: no correction */
  int32_t negative; /* whether the candidate is a negative for other queries */
  int32_t unused;
} TrsPair;

/* Rows first .. first + n - 1 of the matrix of all pairs' scores, m columns. */
typedef struct {
  int64_t first, n, m;
  const TrsPair *pair; /* [m] all pairs of the batch */
  float *z;            /* [n, m] scores, later overwritten by their gradients */
  double *log_sum;     /* log of the sum of each query's exponentials */
  double *row_loss;    /* [n] scratch */
  float scale;         /* factor of the gradients */
} TrsPairTile;

/*
  TrsPairPlace - Count the candidates of n that rank before candidate `own` for a query: those with
    a higher score, and those with an equal score and a smaller index.

  Not collective. Scores are summed in double in a fixed order, so that the result depends only on
  the rows. The query and each candidate's row have D columns.
*/
int64_t TrsPairPlace(int64_t D, const float *query, int64_t n, const float *candidates, int64_t own);
