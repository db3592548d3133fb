/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Steps of a GRU on the CPU. Each row is computed by one thread, so the number of threads does not
  change the result.

  Source: torch.nn.GRU; src/RULES.md, rule A26a
*/
#include "cpu/cpu_kernels.h"
#include "cpu/isa/dense_kernels.h"

static void forward_row(const TrsGruStep *step, const TrsDenseKernels *kernels, int64_t k)
{
  const int64_t H = step->H;
  const float *from_h = step->from_h + 3 * k * H, *before = step->before + k * H;
  float *gates = step->gates + 3 * k * H;
  float *state = k < step->going_on ? step->next + k * H : step->to + step->bag[k] * step->to_stride;

  for (int64_t i = 0; i < 2 * H; i++) gates[i] += from_h[i];
  kernels->activate(2 * H, TRS_ACTIVATION_SIGMOID, gates);
  for (int64_t i = 0; i < H; i++) gates[2 * H + i] += gates[i] * from_h[2 * H + i];
  kernels->activate(H, TRS_ACTIVATION_TANH, gates + 2 * H);
  for (int64_t i = 0; i < H; i++)
    state[i] = (1.0F - gates[H + i]) * gates[2 * H + i] + gates[H + i] * before[i];
}

static void backward_row(const TrsGruStep *step, int64_t k)
{
  const int64_t H = step->H;
  const float *before = step->before + k * H;
  float *gates = step->gates + 3 * k * H, *from_h = step->from_h + 3 * k * H, *dh = step->dh + k * H;

  for (int64_t i = 0; i < H; i++) {
    const float r = gates[i], z = gates[H + i], n = gates[2 * H + i];
    const float dn = dh[i] * (1.0F - z) * (1.0F - n * n), dz = dh[i] * (before[i] - n) * z * (1.0F - z),
                dr = dn * from_h[2 * H + i] * r * (1.0F - r);

    gates[i] = from_h[i] = dr;
    gates[H + i] = from_h[H + i] = dz;
    gates[2 * H + i] = dn;
    from_h[2 * H + i] = dn * r;
    dh[i] *= z;
  }
}

PetscErrorCode TrsGruForwardCpu(TrsStream stream, const TrsGruStep *step)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t k = 0; k < step->m; k++) forward_row(step, kernels, k);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGruBackwardCpu(TrsStream stream, const TrsGruStep *step)
{
  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t k = 0; k < step->m; k++) backward_row(step, k);
  PetscFunctionReturn(PETSC_SUCCESS);
}
