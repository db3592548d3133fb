/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/cpu_kernels.h"
#include "cpu/isa/dense_kernels.h"
#include "cpu/isa/lanes.h"

#include <math.h>
#include <string.h>

/* Bytes of candidates that TrsPairFindBest() compares with all queries before the next ones. */
enum { TRS_TILE_BYTES = 128 << 10 };

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
  int64_t d = 0;

  for (; d + TRS_LANES <= D; d += TRS_LANES) /* compilers make vectors of this form */
    for (int l = 0; l < TRS_LANES; l++) lane[l] += (double)x[d + l] * (double)y[d + l];
  for (int l = 0; d < D; d++, l++) lane[l] += (double)x[d] * (double)y[d];
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

/* Insert a candidate behind all entries whose scores are not lower. */
static void insert_best(int64_t k, TrsPairBest *best, double score, int64_t row, int64_t id)
{
  int64_t i = k - 1;

  if (best[i].row >= 0 && best[i].score >= score) return;
  for (; i > 0 && (best[i - 1].row < 0 || best[i - 1].score < score); i--) best[i] = best[i - 1];
  best[i] = (TrsPairBest){score, row, id};
}

void TrsPairFindBest(int64_t D, int64_t n_queries, const float *queries, int64_t n, const float *candidates,
                     const int64_t *row, const int64_t *id, int64_t k, TrsPairBest *best)
{
  /* candidates that stay in a core's cache while all queries use them */
  const int64_t tile = PetscMax(TRS_TILE_BYTES / (D * (int64_t)sizeof(float)), 1);

#pragma omp parallel
  for (int64_t first = 0; first < n; first += tile) {
    const int64_t end = PetscMin(first + tile, n);

#pragma omp for schedule(static) nowait
    for (int64_t q = 0; q < n_queries; q++)
      for (int64_t c = first; c < end; c++)
        insert_best(k, best + q * k, product(D, queries + q * D, candidates + c * D), row[c], id[c]);
  }
}
