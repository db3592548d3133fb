/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Target attention on the CPU. A bag is processed by one thread, which is the only one that writes
  the bag's rows and target. So the number of threads does not change results.

  Source: src/RULES.md, rule A26a
*/
#include "cpu/cpu_kernels.h"

#include <math.h>
#include <string.h>

static void make_parts(const TrsTargetAttention *a, int64_t b)
{
  const int64_t D = a->D;
  const float *q = a->q + b * a->q_stride;

  for (int64_t i = a->offsets[b]; i < a->offsets[b + 1]; i++) {
    const float *k = a->rows + i * D;
    float *parts = (float *)a->parts + 4 * (i - a->first) * D;

    for (int64_t d = 0; d < D; d++) {
      parts[d] = q[d];
      parts[D + d] = k[d];
      parts[2 * D + d] = q[d] - k[d];
      parts[3 * D + d] = q[d] * k[d];
    }
  }
}

/* Compute the n weights of a bag from its scores. */
static void make_weights(PetscBool softmax, int64_t n, const float *score, float *weight)
{
  float most = -INFINITY, sum = 0.0F;

  if (!softmax) {
    for (int64_t i = 0; i < n; i++) weight[i] = score[i];
    return;
  }
  for (int64_t i = 0; i < n; i++) most = fmaxf(most, score[i]);
  for (int64_t i = 0; i < n; i++) sum += weight[i] = expf(score[i] - most);
  for (int64_t i = 0; i < n; i++) weight[i] /= sum;
}

static void pool(const TrsTargetAttention *a, int64_t b)
{
  const int64_t D = a->D, begin = a->offsets[b], n = a->offsets[b + 1] - begin, at = begin - a->first;
  float *out = a->out + b * a->out_stride;

  make_weights(a->softmax, n, a->score + at, a->weight + at);
  memset(out, 0, (size_t)D * sizeof(*out));
  for (int64_t i = 0; i < n; i++)
    for (int64_t d = 0; d < D; d++) out[d] += a->weight[at + i] * a->rows[(begin + i) * D + d];
}

static void pool_backward(const TrsTargetAttention *a, int64_t b)
{
  const int64_t D = a->D, begin = a->offsets[b], n = a->offsets[b + 1] - begin, at = begin - a->first;
  const float *dout = a->out + b * a->out_stride, *weight = a->weight + at;
  float *score = a->score + at, mean = 0.0F;

  for (int64_t i = 0; i < n; i++) {
    const float *k = a->rows + (begin + i) * D;
    float *dk = a->grads + (begin + i) * D;

    score[i] = 0.0F;
    for (int64_t d = 0; d < D; d++) {
      score[i] += dout[d] * k[d];
      dk[d] = weight[i] * dout[d];
    }
    mean += weight[i] * score[i];
  }
  for (int64_t i = 0; a->softmax && i < n; i++) score[i] = weight[i] * (score[i] - mean);
}

static void parts_backward(const TrsTargetAttention *a, int64_t b)
{
  const int64_t D = a->D;
  const float *q = a->q + b * a->q_stride;
  float *dq = a->dq + b * a->dq_stride;

  for (int64_t i = a->offsets[b]; i < a->offsets[b + 1]; i++) {
    const float *k = a->rows + i * D, *parts = (const float *)a->parts + 4 * (i - a->first) * D;
    float *dk = a->grads + i * D;

    for (int64_t d = 0; d < D; d++) {
      dq[d] += parts[d] + parts[2 * D + d] + parts[3 * D + d] * k[d];
      dk[d] += parts[D + d] - parts[2 * D + d] + parts[3 * D + d] * q[d];
    }
  }
}

static PetscErrorCode for_bags(const TrsTargetAttention *a, void (*body)(const TrsTargetAttention *, int64_t))
{
  PetscFunctionBegin;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < a->n_bags; b++) body(a, b);
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define KERNEL(Name, body) \
  PetscErrorCode TrsTarget##Name##Cpu(TrsStream stream, const TrsTargetAttention *attention) \
  { \
    (void)stream; \
    return for_bags(attention, body); \
  }
KERNEL(Parts, make_parts)
KERNEL(Pool, pool)
KERNEL(PoolBackward, pool_backward)
KERNEL(PartsBackward, parts_backward)
