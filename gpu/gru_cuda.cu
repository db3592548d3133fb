/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Steps of a gru on the GPU, twin of src/cpu/gru_cpu.c within the rounding of exp and tanh. A thread
  computes one number of the state. It reads and writes this number's three gates once.
*/
#include "gpu/compute_cuda.h"
#include "gpu/wide_cuda.h"

#include <math.h>

enum { TRS_GRU_THREADS = 256 };

/*
  Store one number of each of the row's three gates in the copy for matrix products, if there is a
  copy.
*/
static __device__ __forceinline__ void copy_gates(void *copy, int64_t at, int64_t H, float r, float z,
                                                  float n)
{
  if (!copy) return;
  Bf16 *const to = static_cast<Bf16 *>(copy) + at;
  from_float(r, to);
  from_float(z, to + H);
  from_float(n, to + 2 * H);
}

static __global__ void __launch_bounds__(TRS_GRU_THREADS) gru_forward_kernel(TrsGruStep s)
{
  for (int64_t at = TrsCudaFirst(); at < s.m * s.H; at += TrsCudaStep()) {
    const int64_t k = at / s.H, i = at - k * s.H;
    float *const gates = s.gates + 3 * k * s.H + i;
    const float *const from_h = s.from_h + 3 * k * s.H + i;
    const float r = sigmoid(gates[0] + from_h[0]), z = sigmoid(gates[s.H] + from_h[s.H]);
    const float n = tanhf(gates[2 * s.H] + r * from_h[2 * s.H]);
    float *const state = k < s.going_on ? s.next + k * s.H : s.to + s.bag[k] * s.to_stride;

    gates[0] = r;
    gates[s.H] = z;
    gates[2 * s.H] = n;
    const float next = (1.0f - z) * n + z * s.before[at];
    state[i] = next;
    if (s.next_copy && k < s.going_on) from_float(next, static_cast<Bf16 *>(s.next_copy) + at);
  }
}

static __global__ void __launch_bounds__(TRS_GRU_THREADS) gru_backward_kernel(TrsGruStep s)
{
  for (int64_t at = TrsCudaFirst(); at < s.m * s.H; at += TrsCudaStep()) {
    const int64_t k = at / s.H, i = at - k * s.H;
    float *const gates = s.gates + 3 * k * s.H + i, *const from_h = s.from_h + 3 * k * s.H + i;
    const float r = gates[0], z = gates[s.H], n = gates[2 * s.H], dh = s.dh[at];
    const float dn = dh * (1.0f - z) * (1.0f - n * n), dz = dh * (s.before[at] - n) * z * (1.0f - z);
    const float dr = dn * from_h[2 * s.H] * r * (1.0f - r);

    gates[0] = from_h[0] = dr;
    gates[s.H] = from_h[s.H] = dz;
    gates[2 * s.H] = dn;
    from_h[2 * s.H] = dn * r;
    s.dh[at] = dh * z;
    copy_gates(s.gates_copy, 3 * k * s.H + i, s.H, dr, dz, dn);
    copy_gates(s.from_h_copy, 3 * k * s.H + i, s.H, dr, dz, dn * r);
  }
}

PetscErrorCode TrsGruForwardCuda(TrsStream stream, const TrsGruStep *step)
{
  PetscFunctionBegin;
  if (step->m <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(gru_forward_kernel, TrsCudaBlocks(step->m * step->H, TRS_GRU_THREADS), TRS_GRU_THREADS, 0,
            TrsCudaStream(stream), *step);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsGruBackwardCuda(TrsStream stream, const TrsGruStep *step)
{
  PetscFunctionBegin;
  if (step->m <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(gru_backward_kernel, TrsCudaBlocks(step->m * step->H, TRS_GRU_THREADS), TRS_GRU_THREADS, 0,
            TrsCudaStream(stream), *step);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
