/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/energy.h"

#include <math.h>
#include <stdio.h>

PetscErrorCode TrsReportEnergy(MPI_Comm comm, TrsEnergy energy, int64_t samples, TrsResults results)
{
  char parts[96] = "";
  TrsEnergyUse use;
  double joules, per_million;

  PetscFunctionBegin;
  PetscCall(TrsEnergyRead(energy, &use));
  if ((use.cpu_j < 0 && use.gpu_j < 0) || samples == 0) PetscFunctionReturn(PETSC_SUCCESS);
  joules = PetscMax(use.cpu_j, 0) + PetscMax(use.gpu_j, 0);
  per_million = joules / (1e-6 * (double)samples);
  if (use.cpu_j < 0)
    (void)snprintf(parts, sizeof(parts), "GPUs alone");
  else if (use.gpu_j < 0)
    (void)snprintf(parts, sizeof(parts), "processors and memory of the hosts");
  else
    (void)snprintf(parts, sizeof(parts), "%.0f J of them by GPUs", use.gpu_j);
  PetscCall(PetscPrintf(comm, "%-10s %.0f J for a million samples, %.0f J in all (%s)\n", "energy",
                        per_million, joules, parts));
  if (use.cpu_j >= 0) PetscCall(TrsResultsSetInt(results, "energy_cpu_joules", llround(use.cpu_j)));
  if (use.gpu_j >= 0) PetscCall(TrsResultsSetInt(results, "energy_gpu_joules", llround(use.gpu_j)));
  PetscCall(TrsResultsSetInt(results, "energy_joules_per_million_samples", llround(per_million)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
