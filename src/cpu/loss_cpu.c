/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Losses on the CPU, on one thread, because a few operations per sample are not worth more threads.
*/
#include "cpu/cpu_kernels.h"

#define TRS_LOSS_SAMPLE static inline
#include "compute/loss_sample.h"

typedef double TrsLossSample(double z, double y, double q, double *g, double *p);

static inline __attribute__((always_inline)) void run(const TrsLossArgs *a, TrsLossSample *of_sample)
{
  const float scale = a->now ? a->now->loss_scale * a->scale : a->scale;
  const double q = (double)a->parameter;
  double sum = 0.0;

  for (int64_t b = 0; b < a->batch; b++) {
    const double y = a->y ? (double)a->y[b * a->y_stride] : (double)NAN;
    const double weight = a->w ? (double)a->w[b] : 1.0;
    double g, p, loss = of_sample((double)a->z[b * a->z_stride], y, q, &g, &p);

    if (a->p) a->p[b * a->p_stride] = (float)p;
    if (!a->y) continue;
    if (!a->missing && isnan(y)) g = loss = y;
    sum += weight * loss;
    if (a->of_sample) a->of_sample[b * a->of_sample_stride] = weight * loss;
    if (a->dz) a->dz[b * a->z_stride] = (float)g * (scale * (float)weight);
  }
  if (a->y) *a->loss += sum;
}

PetscErrorCode TrsBceCpu(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  if (args->layer) PetscCall(TrsLinearForwardCpu(stream, args->layer));
  run(args, TrsBceSample);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMseCpu(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  if (args->layer) PetscCall(TrsLinearForwardCpu(stream, args->layer));
  run(args, TrsMseSample);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHuberCpu(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  if (args->layer) PetscCall(TrsLinearForwardCpu(stream, args->layer));
  run(args, TrsHuberSample);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute the softmax loss of a sample; p and dz may be NULL. */
static double softmax_sample(int classes, const float *z, double y, float scale, float *dz, float *p)
{
  const PetscBool has_label = (PetscBool)(y >= 0.0 && y < (double)classes);
  double most = (double)z[0], sum = 0.0;

  for (int c = 1; c < classes; c++) most = fmax(most, (double)z[c]);
  for (int c = 0; c < classes; c++) sum += exp((double)z[c] - most);
  for (int c = 0; c < classes; c++) {
    const double share = exp((double)z[c] - most) / sum;

    if (p) p[c] = (float)share;
    if (dz) dz[c] = has_label ? (float)(share - (c == (int)y ? 1.0 : 0.0)) * scale : 0.0F;
  }
  return has_label ? log(sum) + most - (double)z[(int)y] : 0.0;
}

PetscErrorCode TrsSoftmaxCpu(TrsStream stream, const TrsLossArgs *args)
{
  const TrsLossArgs *a = args;
  const float scale = a->now ? a->now->loss_scale * a->scale : a->scale;
  double sum = 0.0;

  (void)stream;
  PetscFunctionBegin;
  for (int64_t b = 0; b < a->batch; b++) {
    const double y = a->y ? (double)a->y[b * a->y_stride] : (double)NAN;
    const double weight = a->w ? (double)a->w[b] : 1.0;
    const double loss = weight * softmax_sample(a->classes, a->z + b * a->z_stride, y, scale * (float)weight,
                                                a->y && a->dz ? a->dz + b * a->z_stride : NULL,
                                                a->p ? a->p + b * a->p_stride : NULL);

    sum += loss;
    if (a->y && a->of_sample) a->of_sample[b * a->of_sample_stride] = loss;
  }
  if (a->y) *a->loss += sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}
