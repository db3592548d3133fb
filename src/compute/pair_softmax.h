/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The softmax of each query over all candidates, on tiles of the matrix of scores (the kernels
  pair_list, pair_queries and pair_candidates of compute/compute_ops.h).

  Query i and candidate i are a pair. The softmax is over the query's scores with all candidates. It
  excludes accidental hits: another pair's candidate with the same id is not a negative. The pair's
  loss is -log of the softmax of its own score. Each score is corrected by the log of the
  candidate's frequency.

  Source: Yi et al. 2019, Sampling-bias-corrected neural modeling for large corpus item
          recommendations; src/RULES.md, section 20
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* A query of the batch and its candidate. */
typedef struct {
  /* the candidate's id; if negative, it is unknown, so the candidate is never an accidental hit */
  int64_t id;
  float weight;     /* the query's weight in the loss; if 0, the pair has only a candidate */
  float log_q;      /* log of the candidate's frequency; 0 for no correction */
  int32_t negative; /* 1 if the candidate is a negative for other queries; otherwise 0 */
  int32_t unused;
} TrsPair;

/* The rows first .. first + n - 1 of the matrix of all pairs' scores, which has m columns. */
typedef struct {
  int64_t first, n, m;
  const TrsPair *pair; /* [m] all pairs of the batch */
  float *z;            /* [n, m] scores, which are later replaced by their gradients */
  double *log_sum;     /* log of the sum of exp(score) for each query */
  double *row_loss;    /* [n] scratch for each row's loss */
  float scale;         /* factor of the gradients */
} TrsPairTile;

/*
  TrsPairPlace - Return the rank of candidate `own` among n candidates for a query: the number of
    candidates with a higher score, or with an equal score and a smaller index.

  Not collective. Scores are summed in double in a fixed order, so that the result depends only on
  the rows. The query and each candidate's row have D columns.
*/
int64_t TrsPairPlace(int64_t D, const float *query, int64_t n, const float *candidates, int64_t own);

/* One of the best candidates of a query. */
typedef struct {
  double score;
  int64_t row; /* -1 for an unused entry, which comes after all used entries */
  int64_t id;
} TrsPairBest;

/*
  TrsPairFindBest - Merge n more candidates into the k best candidates of each query.

  Not collective. Entries are in the order of descending scores, and equal scores in the order of
  rows. Scores are summed as in TrsPairPlace().

  In:     queries     [n_queries, D]
          candidates  [n, D]
          row, id     [n] rows must ascend within a call, and from call to call
  InOut:  best        [n_queries, k]
*/
void TrsPairFindBest(int64_t D, int64_t n_queries, const float *queries, int64_t n, const float *candidates,
                     const int64_t *row, const int64_t *id, int64_t k, TrsPairBest *best);
