/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests the softmax of pairs. Its loss is compared with the definition in double, and its gradients
  with finite differences of this loss. The gradients of rows normalised to length 1 are compared
  with finite differences as well. The best candidates of queries are found by hand.
*/
#include "compute/pair_softmax.h"
#include "cpu/cpu_kernels.h"
#include "trs_test.h"

#include <math.h>

enum { N = 6, D = 3, SPLIT = 4 };

/*
  Candidates 0 and 3 have the same id, 1 and 4 have no id, query 2 has no weight, and candidate 5 is
  not a negative.
*/
static const TrsPair pairs[N] = {{7, 1.0F, -0.5F, 1, 0},  {-1, 2.0F, 0.0F, 1, 0},  {5, 0.0F, -2.0F, 1, 0},
                                 {7, 0.25F, -0.5F, 1, 0}, {-1, 1.5F, -1.0F, 1, 0}, {9, 1.0F, 0.75F, 0, 0}};
static const double temperature = 0.4, step = 1e-6;

static void fill(double *q, double *c)
{
  for (int i = 0; i < N * D; i++) {
    q[i] = sin(1.0 + 3.7 * i);
    c[i] = cos(0.3 + 2.3 * i);
  }
}

static double score(const double *q, const double *c, int i, int j)
{
  double sum = 0.0;

  for (int d = 0; d < D; d++) sum += q[i * D + d] * c[j * D + d];
  return sum / temperature;
}

/* The weighted sum of -log softmax, computed from its definition. */
static double loss_of(const double *q, const double *c)
{
  double loss = 0.0;

  for (int i = 0; i < N; i++) {
    double sum = 0.0;

    for (int j = 0; j < N; j++)
      if (i == j || (pairs[j].negative && (pairs[j].id < 0 || pairs[i].id != pairs[j].id)))
        sum += exp(score(q, c, i, j) - (double)pairs[j].log_q);
    loss += (double)pairs[i].weight * (log(sum) - score(q, c, i, i) + (double)pairs[i].log_q);
  }
  return loss;
}

/* Compute gradients from the scores, for all queries and all candidates, in two tiles each. */
static double run(const double *q, const double *c, float *of_queries, float *of_candidates)
{
  double log_sum[N], row_loss[N], loss = 0.0;

  for (int i = 0; i < N; i++) {
    for (int j = 0; j < N; j++) {
      of_queries[i * N + j] = (float)score(q, c, i, j);
      of_candidates[j * N + i] = (float)score(q, c, i, j);
    }
  }
  for (int begin = 0; begin < N; begin += SPLIT) {
    TrsPairTile tile = {
        begin, begin ? N - SPLIT : SPLIT, N, pairs, of_queries + begin * N, log_sum + begin, row_loss, 0.5F};

    assert_petsc_ok(TrsPairQueriesCpu(NULL, &tile, &loss));
  }
  for (int begin = 0; begin < N; begin += SPLIT) {
    TrsPairTile tile = {
        begin, begin ? N - SPLIT : SPLIT, N, pairs, of_candidates + begin * N, log_sum, row_loss, 0.5F};

    assert_petsc_ok(TrsPairCandidatesCpu(NULL, &tile));
  }
  return loss;
}

static void test_softmax(void **state)
{
  float of_queries[N * N], of_candidates[N * N];
  double q[N * D], c[N * D];

  (void)state;
  fill(q, c);
  assert_close(run(q, c, of_queries, of_candidates), loss_of(q, c), 1e-5, 1e-6);
  assert_close(of_queries[3], 0.0, 0.0, 0.0); /* no gradient from an accidental hit */
  for (int i = 0; i < N; i++) {
    for (int d = 0; d < D; d++) {
      double *moved[] = {&q[i * D + d], &c[i * D + d]}, found[2] = {0};

      for (int j = 0; j < N; j++) {
        found[0] += (double)of_queries[i * N + j] * c[j * D + d] / temperature;
        found[1] += (double)of_candidates[i * N + j] * q[j * D + d] / temperature;
      }
      for (int side = 0; side < 2; side++) {
        const double at = *moved[side];
        double up, down;

        *moved[side] = at + step;
        up = loss_of(q, c);
        *moved[side] = at - step;
        down = loss_of(q, c);
        *moved[side] = at;
        assert_close(found[side], 0.5 * (up - down) / (2 * step), 1e-5, 1e-5);
      }
    }
  }
}

/*
  The weighted sum of the numbers of a row that was normalised to length 1. The test compares its
  gradient.
*/
static double unit_sum(const double *x, const double *weight)
{
  double squares = 0.0, sum = 0.0;

  for (int d = 0; d < D; d++) squares += x[d] * x[d];
  for (int d = 0; d < D; d++) sum += weight[d] * x[d] / sqrt(squares);
  return sum;
}

static void test_unit_rows(void **state)
{
  float x[2 * (D + 1)] = {3.0F, -4.0F, 12.0F, 99.0F, 0.0F, 0.0F, 0.0F, 99.0F}, y[2 * (D + 2)];
  float dy[2 * D] = {0.5F, -1.0F, 2.0F, 1.0F, 0.0F, 0.0F};
  double at[D] = {3.0, -4.0, 12.0};
  const double weight[D] = {0.5, -1.0, 2.0};

  (void)state;
  assert_petsc_ok(TrsUnitRowsCpu(NULL, 2, D, x, D + 1, y, D + 2));
  for (int d = 0; d < D; d++) assert_close(y[d], at[d] / 13.0, 1e-7, 0.0);
  assert_close(y[D + 2], 0.0, 0.0, 0.0); /* a row of zeros stays zero */
  assert_petsc_ok(TrsUnitRowsBackwardCpu(NULL, 2, D, x, D + 1, dy, D));
  for (int d = 0; d < D; d++) {
    const double from = at[d];
    double up, down;

    at[d] = from + step;
    up = unit_sum(at, weight);
    at[d] = from - step;
    down = unit_sum(at, weight);
    at[d] = from;
    assert_close(dy[d], (up - down) / (2 * step), 1e-7, 1e-6);
  }
  assert_close(dy[D], 1e12, 0.0, 1e-6); /* as in torch.nn.functional.normalize */
}

/*
  The best candidates of two queries from two calls, by hand. Query 1 is (1), so its scores are the
  candidates; query 2 is (-1). Equal scores are in the order of rows, and unused entries come last.
*/
static void test_best(void **state)
{
  static const float queries[] = {1.0F, -1.0F}, first[] = {2.0F, -1.0F, 2.0F}, second[] = {3.0F, 2.0F, -1.0F};
  static const int64_t row[] = {0, 4, 5, 7, 8, 9}, id[] = {10, 14, 15, 17, 18, 19};
  static const int64_t wanted[2][4] = {{7, 0, 5, 8}, {4, 9, 0, 5}};
  TrsPairBest best[2][4];

  (void)state;
  for (int q = 0; q < 2; q++)
    for (int k = 0; k < 4; k++) best[q][k] = (TrsPairBest){.row = -1, .id = -1};
  TrsPairFindBest(1, 2, queries, 3, first, row, id, 4, best[0]);
  for (int q = 0; q < 2; q++) assert_int_equal(best[q][3].row, -1);
  TrsPairFindBest(1, 2, queries, 3, second, row + 3, id + 3, 4, best[0]);
  for (int q = 0; q < 2; q++)
    for (int k = 0; k < 4; k++) {
      assert_int_equal(best[q][k].row, wanted[q][k]);
      assert_int_equal(best[q][k].id, wanted[q][k] + 10);
    }
  assert_true(best[0][0].score == 3.0 && best[1][0].score == 1.0 && best[1][2].score == -2.0);
}

TRS_TEST_MAIN(cmocka_unit_test(test_softmax), cmocka_unit_test(test_unit_rows), cmocka_unit_test(test_best))
