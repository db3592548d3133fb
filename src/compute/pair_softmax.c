/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/pair_softmax.h"

#include <math.h>
#include <string.h>

/* Is candidate c among those of query q? */
static inline int takes_part(const TrsPair *pair, int64_t q, int64_t c)
{
  return q == c || (pair[c].negative && (pair[c].id < 0 || pair[c].id != pair[q].id));
}

static double query(const TrsPairTile *tile, int64_t row)
{
  const TrsPair *pair = tile->pair;
  const int64_t own = tile->first + row;
  float *z = tile->z + row * tile->m;
  double most = -HUGE_VAL, sum = 0.0, loss;

  tile->log_sum[row] = 0.0;
  if (pair[own].weight == 0.0F) {
    memset(z, 0, (size_t)tile->m * sizeof(float));
    return 0.0;
  }
  for (int64_t c = 0; c < tile->m; c++) {
    if (!takes_part(pair, own, c)) continue;
    z[c] -= pair[c].log_q;
    most = fmax(most, (double)z[c]);
  }
  for (int64_t c = 0; c < tile->m; c++)
    if (takes_part(pair, own, c)) sum += exp((double)z[c] - most);
  tile->log_sum[row] = most + log(sum);
  loss = (double)pair[own].weight * (tile->log_sum[row] - (double)z[own]);
  for (int64_t c = 0; c < tile->m; c++) {
    const double share = takes_part(pair, own, c) ? exp((double)z[c] - tile->log_sum[row]) : 0.0;

    z[c] = (float)(share - (c == own ? 1.0 : 0.0)) * (tile->scale * pair[own].weight);
  }
  return loss;
}

void TrsPairSoftmaxQueries(const TrsPairTile *tile, double *loss)
{
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < tile->n; row++) loss[row] = query(tile, row);
}

void TrsPairSoftmaxCandidates(const TrsPairTile *tile)
{
  const TrsPair *pair = tile->pair;

#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < tile->n; row++) {
    const int64_t own = tile->first + row;
    const double log_q = (double)pair[own].log_q;
    float *z = tile->z + row * tile->m;

    for (int64_t q = 0; q < tile->m; q++) {
      double share = 0.0;

      if (pair[q].weight != 0.0F && takes_part(pair, q, own))
        share = exp((double)z[q] - log_q - tile->log_sum[q]) - (q == own ? 1.0 : 0.0);
      z[q] = (float)share * (tile->scale * pair[q].weight);
    }
  }
}

/* The product of two rows, in lanes, which the compiler makes vectors of. */
static double product(int64_t D, const float *x, const float *y)
{
  double lane[8] = {0};

  for (int64_t d = 0; d < D; d++) lane[d % 8] += (double)x[d] * (double)y[d];
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

int64_t TrsPairPlace(int64_t D, const float *query, int64_t n, const float *candidates, int64_t own)
{
  const double score = product(D, query, candidates + own * D);
  int64_t place = 0;

#pragma omp parallel for schedule(static) reduction(+ : place)
  for (int64_t c = 0; c < n; c++) {
    const double other = product(D, query, candidates + c * D);

    if (other > score || (other == score && c < own)) place++;
  }
  return place;
}
