/* SPDX-License-Identifier: BSD-3-Clause */
/* Optimizers of dense layers on the CPU. */
#include "cpu/cpu_kernels.h"
#include "cpu/isa/dense_kernels.h"

#include <math.h>

/* Element-wise work is divided into parts of this size, whatever the number of threads is. */
enum { TRS_ELEMENTS_A_PART = 16384, TRS_PARTS_AT_ONCE = 256 };

PetscErrorCode TrsSumOfSquaresCpu(TrsStream stream, int64_t n, const float *x, double *sum)
{
  const int64_t chunk = (int64_t)TRS_PARTS_AT_ONCE * TRS_ELEMENTS_A_PART;

  (void)stream;
  PetscFunctionBegin;
  *sum = 0.0;
  for (int64_t begin = 0; begin < n; begin += chunk) {
    const int n_parts = (int)((PetscMin(chunk, n - begin) + TRS_ELEMENTS_A_PART - 1) / TRS_ELEMENTS_A_PART);
    double part_sum[TRS_PARTS_AT_ONCE];

#pragma omp parallel for schedule(static)
    for (int part = 0; part < n_parts; part++) {
      const int64_t first = begin + (int64_t)part * TRS_ELEMENTS_A_PART,
                    end = PetscMin(n, first + TRS_ELEMENTS_A_PART);
      double s = 0.0;

      for (int64_t i = first; i < end; i++) s += (double)x[i] * (double)x[i];
      part_sum[part] = s;
    }
    for (int part = 0; part < n_parts; part++) *sum += part_sum[part];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseUpdateCpu(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                                 const float *grad, float *weight, float *state1, float *state2)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();
  const TrsUpdateNumbers now = args->now ? *args->now : TrsUpdateNumbersOf(args);
  TrsDenseOptimizerArgs scaled = *args;

  PetscFunctionBegin;
  scaled.learning_rate = now.learning_rate;
  if (args->squares) { /* torch adds 1e-6 to the norm */
    const double factor = args->max_norm / (sqrt(*args->squares) + 1e-6);

    if (factor < 1.0) scaled.grad_scale *= (float)factor;
  }
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i += TRS_ELEMENTS_A_PART)
    kernels->update(PetscMin(TRS_ELEMENTS_A_PART, n - i), &scaled, now.correction1, now.correction2, grad + i,
                    weight + i, state1 ? state1 + i : NULL, state2 ? state2 + i : NULL);
  if (args->operands && args->kind != TRS_DENSE_LAMB)
    PetscCall(TrsConvertCpu(stream, n, TRS_FP32, weight, TRS_BF16, args->operands));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute adam's direction for an element. It is 0 before the element's first gradient. */
static inline float lamb_direction(const TrsDenseOptimizerArgs *args, float correction1, float correction2,
                                   float mean, float square, float w)
{
  const float adam = mean == 0.0f ? 0.0f : (mean / correction1) / (sqrtf(square / correction2) + args->eps);

  return adam + args->weight_decay * w;
}

PetscErrorCode TrsLambApplyCpu(TrsStream stream, int64_t n, const TrsDenseOptimizerArgs *args,
                               const float *exp_avg, const float *exp_avg_sq, double *squares, float *weight)
{
  const int64_t chunk = (int64_t)TRS_PARTS_AT_ONCE * TRS_ELEMENTS_A_PART;
  const TrsUpdateNumbers now = args->now ? *args->now : TrsUpdateNumbersOf(args);
  const float c1 = now.correction1, c2 = now.correction2;
  float rate = now.learning_rate;

  PetscFunctionBegin;
  squares[0] = squares[1] = 0.0;
  for (int64_t begin = 0; begin < n; begin += chunk) {
    const int n_parts = (int)((PetscMin(chunk, n - begin) + TRS_ELEMENTS_A_PART - 1) / TRS_ELEMENTS_A_PART);
    double part_sum[TRS_PARTS_AT_ONCE][2];

#pragma omp parallel for schedule(static)
    for (int part = 0; part < n_parts; part++) {
      const int64_t first = begin + (int64_t)part * TRS_ELEMENTS_A_PART,
                    end = PetscMin(n, first + TRS_ELEMENTS_A_PART);
      double ww = 0.0, rr = 0.0;

      for (int64_t i = first; i < end; i++) {
        const double r = (double)lamb_direction(args, c1, c2, exp_avg[i], exp_avg_sq[i], weight[i]);

        ww += (double)weight[i] * (double)weight[i];
        rr += r * r;
      }
      part_sum[part][0] = ww;
      part_sum[part][1] = rr;
    }
    for (int part = 0; part < n_parts; part++)
      for (int k = 0; k < 2; k++) squares[k] += part_sum[part][k];
  }
  if (squares[0] != 0.0 && squares[1] != 0.0) rate *= (float)sqrt(squares[0] / squares[1]);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i++)
    weight[i] -= rate * lamb_direction(args, c1, c2, exp_avg[i], exp_avg_sq[i], weight[i]);
  if (args->operands) PetscCall(TrsConvertCpu(stream, n, TRS_FP32, weight, TRS_BF16, args->operands));
  PetscFunctionReturn(PETSC_SUCCESS);
}
