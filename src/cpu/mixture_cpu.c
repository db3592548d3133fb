/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/cpu_kernels.h"

#include <math.h>
#include <string.h>

/* A thread computes whole samples. The order of samples does not change results. */

/* Return the expert to which weight j of the gate belongs. */
static int expert_of(const TrsMixture *m, int j)
{
  const int n = m->end[0] - m->begin[0];

  return j < n ? m->begin[0] + j : m->begin[1] + j - n;
}

static void softmax(int n, float *x)
{
  float most = x[0], sum = 0.0F;

  for (int j = 1; j < n; j++) most = fmaxf(most, x[j]);
  for (int j = 0; j < n; j++) sum += x[j] = expf(x[j] - most);
  for (int j = 0; j < n; j++) x[j] /= sum;
}

PetscErrorCode TrsMixForwardCpu(TrsStream stream, const TrsMixture *mixture, void *y)
{
  const TrsMixture *m = mixture;

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < m->batch; b++) {
    float *gate = m->gate + b * m->n, *to = (float *)y + b * m->width;

    softmax(m->n, gate);
    memset(to, 0, (size_t)m->width * sizeof(float));
    for (int j = 0; j < m->n; j++) {
      const float *expert = (const float *)m->experts + b * m->stride + expert_of(m, j) * m->width;

      for (int64_t d = 0; d < m->width; d++) to[d] += gate[j] * expert[d];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMixBackwardCpu(TrsStream stream, const TrsMixture *mixture, const void *dy)
{
  const TrsMixture *m = mixture;
  const float *experts = (const float *)m->experts;
  float *dexperts = (float *)m->dexperts;

  (void)stream;
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < m->batch; b++) {
    float *gate = m->gate + b * m->n;
    const float *from = (const float *)dy + b * m->width;
    float mean = 0.0F; /* sum of the experts' dot products with dy, weighted by the gate */

    for (int pass = 0; pass < 2; pass++) {
      for (int j = 0; j < m->n; j++) {
        const int64_t at = b * m->stride + expert_of(m, j) * m->width;
        float product = 0.0F;

        for (int64_t d = 0; d < m->width; d++) product += from[d] * experts[at + d];
        if (pass == 0) {
          mean += gate[j] * product;
          for (int64_t d = 0; d < m->width; d++) dexperts[at + d] += gate[j] * from[d];
        } else {
          gate[j] *= product - mean;
        }
      }
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
