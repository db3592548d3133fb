/* SPDX-License-Identifier: BSD-3-Clause */
/* The energy of a training, in its report. */
#pragma once

#include "device/energy.h"
#include "io/results.h"

/*
  TrsReportEnergy - Print the energy since the counters were started, and the energy for a million
    samples.

  Collective. The results get the same numbers as attributes: energy_cpu_joules and
  energy_gpu_joules, if they could be read, and energy_joules_per_million_samples. If nothing can be
  read, nothing is printed.
*/
PetscErrorCode TrsReportEnergy(MPI_Comm comm, TrsEnergy energy, int64_t samples, TrsResults results);
