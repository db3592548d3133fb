/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/compute_ops.h"
#include "compute/gemm.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

const TrsComputeOps *const trs_compute_backends[] = {&trs_compute_cpu,
#if defined(TRS_HAVE_CUDA)
                                                     &trs_compute_cuda,
#endif
                                                     NULL};

PetscErrorCode TrsComputeFind(const char *name, const TrsComputeOps **compute)
{
  PetscFunctionBegin;
  for (int i = 0; trs_compute_backends[i]; i++) {
    if (strcmp(trs_compute_backends[i]->name, name) != 0) continue;
    *compute = trs_compute_backends[i];
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, "this build has no kernels for device %s", name);
}

TrsUpdateNumbers TrsUpdateNumbersOf(const TrsDenseOptimizerArgs *args)
{
  const double rate = (double)args->learning_rate, t = (double)args->step;

  return (TrsUpdateNumbers){.learning_rate = args->learning_rate,
                            .correction1 = (float)(1.0 - pow(args->beta1, t)),
                            .correction2 = (float)(1.0 - pow(args->beta2, t)),
                            .kept = (float)(1.0 - rate * (double)args->weight_decay)};
}

/*
  The instruction set in use. Several threads may find NULL and set it at the same time, because all
  write the same value. TrsComputeSetIsa() may change it.
*/
static const char *_Atomic isa_in_use;

/* Find the best instruction set that the processor has and that `limit` allows. NULL: no limit. */
static const char *best_isa(const char *limit)
{
#if defined(__x86_64__)
  const int allow_avx512 = !limit || !strcmp(limit, "avx512");
  const int allow_avx2 = allow_avx512 || !strcmp(limit, "avx2");

  if (allow_avx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return "avx512";
  if (allow_avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  (void)limit;
  return "portable";
}

const char *TrsComputeIsa(void)
{
  const char *isa = isa_in_use;

  if (!isa) isa_in_use = isa = best_isa(getenv("TRSHARD_ISA"));
  return isa;
}

void TrsComputeSetIsa(const char *limit)
{
  isa_in_use = limit ? best_isa(limit) : NULL;
}

int TrsComputeThreads(void)
{
  return omp_get_max_threads();
}
