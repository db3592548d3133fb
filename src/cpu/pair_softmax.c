/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/cpu_kernels.h"
#include "cpu/dense_kernels.h"
#include "cpu/lanes.h"

#include <math.h>
#include <string.h>

/* True if candidate c is in the softmax of query q. */
static inline int takes_part(const TrsPair *pair, int64_t q, int64_t c)
{
  return q == c || (pair[c].negative && (pair[c].id < 0 || pair[c].id != pair[q].id));
}

static double sum_of(int64_t n, const float *x)
{
  double lane[TRS_LANES] = {0};

  for (int64_t i = 0; i < n; i++) lane[i % TRS_LANES] += (double)x[i];
  return TrsLanesSum(lane);
}

static double query(const TrsPairTile *tile, int64_t row)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();
  const TrsPair *pair = tile->pair;
  const int64_t own = tile->first + row;
  const float scale = tile->scale * pair[own].weight;
  float *z = tile->z + row * tile->m, most = -INFINITY, score, share;
  double sum;

  tile->log_sum[row] = 0.0;
  if (pair[own].weight == 0.0F) {
    memset(z, 0, (size_t)tile->m * sizeof(float));
    return 0.0;
  }
  for (int64_t c = 0; c < tile->m; c++) {
    z[c] = takes_part(pair, own, c) ? z[c] - pair[c].log_q : -INFINITY;
    most = z[c] > most ? z[c] : most;
  }
  score = z[own];
  for (int64_t c = 0; c < tile->m; c++) z[c] -= most;
  kernels->exponentials(tile->m, z);
  sum = sum_of(tile->m, z);
  tile->log_sum[row] = (double)most + log(sum);
  share = (float)(1.0 / sum) * scale;
  for (int64_t c = 0; c < tile->m; c++) z[c] *= share;
  z[own] = (float)expm1((double)score - tile->log_sum[row]) * scale;
  return (double)pair[own].weight * (tile->log_sum[row] - (double)score);
}

PetscErrorCode TrsPairListCpu(TrsStream stream, int64_t batch, const int64_t *offsets, const int64_t *values,
                              const float *labels, const float *weights, TrsPair *pair)
{
  PetscFunctionBegin;
  (void)stream;
  for (int64_t b = 0; b < batch; b++)
    pair[b] = (TrsPair){.id = offsets[b + 1] > offsets[b] ? values[offsets[b]] : -1,
                        .negative = 1,
                        .weight = labels[b] * (weights ? weights[b] : 1.0F)};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairQueriesCpu(TrsStream stream, const TrsPairTile *tile, double *loss)
{
  double sum = 0.0;

  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < tile->n; row++) tile->row_loss[row] = query(tile, row);
  for (int64_t row = 0; row < tile->n; row++) sum += tile->row_loss[row];
  *loss += sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPairCandidatesCpu(TrsStream stream, const TrsPairTile *tile)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();
  const TrsPair *pair = tile->pair;

  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < tile->n; row++) {
    const int64_t own = tile->first + row;
    const double log_q = (double)pair[own].log_q;
    float *z = tile->z + row * tile->m, of_own;

    for (int64_t q = 0; q < tile->m; q++) {
      const int takes = pair[q].weight != 0.0F && takes_part(pair, q, own);

      z[q] = takes ? (float)((double)z[q] - log_q - tile->log_sum[q]) : -INFINITY;
    }
    of_own = pair[own].weight != 0.0F ? (float)expm1((double)z[own]) : 0.0F;
    kernels->exponentials(tile->m, z);
    z[own] = of_own;
    for (int64_t q = 0; q < tile->m; q++) z[q] *= tile->scale * pair[q].weight;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static double product(int64_t D, const float *x, const float *y)
{
  double lane[TRS_LANES] = {0};

  for (int64_t d = 0; d < D; d++) lane[d % TRS_LANES] += (double)x[d] * (double)y[d];
  return TrsLanesSum(lane);
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
