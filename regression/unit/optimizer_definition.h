/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The formulas of TorchRec's fused optimizers for one row, in double (src/RULES.md, rules A7 to A12
  and section 6). Tests compare kernels and whole runs with them.
*/
#pragma once

#include "compute/tbe.h"

#include <math.h>

enum { DEFINITION_MAX_DIM = 256 };

static inline double definition_norm(int n, const double *x)
{
  double sum = 0.0;

  for (int i = 0; i < n; i++) sum += x[i] * x[i];
  return sqrt(sum);
}

/*
  adam, lamb and their partial forms update the moments m and v. Then w moves along m^ / (sqrt(v^) +
  eps) + decay * w.
*/
static inline void step_moments(const TrsSparseOptimizerArgs *a, int D, double *w, const double *g, double *m,
                                double *v)
{
  const double b1 = (double)a->beta1, b2 = (double)a->beta2, t = (double)a->step;
  const int partial = a->kind == TRS_OPTIM_PARTIAL_ROWWISE_ADAM || a->kind == TRS_OPTIM_PARTIAL_ROWWISE_LAMB;
  const int lamb = a->kind == TRS_OPTIM_LAMB || a->kind == TRS_OPTIM_PARTIAL_ROWWISE_LAMB;
  double r[DEFINITION_MAX_DIM], rate = (double)a->learning_rate;

  if (partial) v[0] = b2 * v[0] + (1.0 - b2) * definition_norm(D, g) * definition_norm(D, g) / D;
  for (int d = 0; d < D; d++) {
    m[d] = b1 * m[d] + (1.0 - b1) * g[d];
    if (!partial) v[d] = b2 * v[d] + (1.0 - b2) * g[d] * g[d];
    r[d] = m[d] / (1.0 - pow(b1, t)) / (sqrt(v[partial ? 0 : d] / (1.0 - pow(b2, t))) + (double)a->eps) +
           (double)a->weight_decay * w[d];
  }
  if (lamb) /* a norm of 0 gives no step */
    rate = definition_norm(D, r) > 0.0 ? rate * definition_norm(D, w) / definition_norm(D, r) : 0.0;
  for (int d = 0; d < D; d++) w[d] -= rate * r[d];
}

/*
  One step of a row of width D, with w and g [D]. Each of the states m and v is [D], or one number
  for the row.
*/
static inline void step_by_definition(const TrsSparseOptimizerArgs *a, int D, double *w, const double *g,
                                      double *m, double *v)
{
  const double lr = (double)a->learning_rate, eps = (double)a->eps, decay = (double)a->weight_decay;
  const double below = definition_norm(D, g) + decay * definition_norm(D, w);
  const double alpha = below > 0.0 ? lr * (double)a->eta * definition_norm(D, w) / below : 0.0;
  double sum = 0.0, rate, keep = 1.0;

  switch (a->kind) {
  case TRS_OPTIM_SGD:
    for (int d = 0; d < D; d++) w[d] -= lr * g[d];
    break;
  case TRS_OPTIM_ADAGRAD:
    for (int d = 0; d < D; d++) {
      m[d] += g[d] * g[d];
      w[d] -= lr * g[d] / (sqrt(m[d]) + eps);
    }
    break;
  case TRS_OPTIM_ROWWISE_ADAGRAD:
    for (int d = 0; d < D; d++)
      sum += pow(g[d] + (a->weight_decay_mode == TRS_DECAY_L2 ? decay * w[d] : 0.0), 2.0);
    m[0] += sum / D;
    rate = lr / (sqrt(m[0]) + eps);
    if (a->weight_decay_mode != TRS_DECAY_NONE)
      keep = 1.0 - decay * (a->weight_decay_mode == TRS_DECAY_L2 ? rate : lr);
    for (int d = 0; d < D; d++) w[d] = keep * w[d] - rate * g[d];
    break;
  case TRS_OPTIM_LARS_SGD:
    for (int d = 0; d < D; d++) {
      m[d] = (double)a->momentum * m[d] + alpha * (g[d] + decay * w[d]);
      w[d] -= m[d];
    }
    break;
  case TRS_OPTIM_LION:
    for (int d = 0; d < D; d++) {
      const double u = (double)a->beta1 * m[d] + (1.0 - (double)a->beta1) * g[d];
      w[d] -= lr * ((u > 0.0) - (u < 0.0) + decay * w[d]);
      m[d] = (double)a->beta2 * m[d] + (1.0 - (double)a->beta2) * g[d];
    }
    break;
  case TRS_OPTIM_FTRL: /* m is z and v is n; sigma = (sqrt(n + g^2) - sqrt(n)) / alpha */
    for (int d = 0; d < D; d++) {
      const double sigma = (sqrt(v[d] + g[d] * g[d]) - sqrt(v[d])) / lr, l1 = (double)a->l1;
      m[d] += g[d] - sigma * w[d];
      v[d] += g[d] * g[d];
      w[d] = fabs(m[d]) <= l1 ? 0.0
                              : -1.0 / (((double)a->beta + sqrt(v[d])) / lr + (double)a->l2) *
                                    (m[d] - (m[d] > 0.0 ? l1 : -l1));
    }
    break;
  default: step_moments(a, D, w, g, m, v); break;
  }
}
