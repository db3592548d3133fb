/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Energy: what the processors and GPUs of the hosts have taken since a moment.

  The first rank of each host reads. Processors and their memory are read from RAPL's counters below
  /sys/class/powercap (TRSHARD_RAPL names another folder), which many systems open to root alone.
  GPUs are read from NVML, which is opened when it is first needed. RAPL counts a whole host, other
  jobs on it included; NVML is asked for the GPUs of this run's ranks alone.
*/
#pragma once

#include "device/device.h"

typedef struct TrsEnergyImpl *TrsEnergy;

/* Joules of all hosts since TrsEnergyStart(); negative where not every host could be read. */
typedef struct {
  double cpu_j; /* processors and, where RAPL tells, their memory */
  double gpu_j;
} TrsEnergyUse;

/*
  TrsEnergyStart - Begin to count.

  Collective. Where a host has counters that wrap around, its first rank gets a thread that reads
  them every 30 s. Free with TrsEnergyStop().

  In:   device  the picked device of this process; its identity names the GPU
  Out:  energy  the counters that this rank reads, none on most ranks
*/
PetscErrorCode TrsEnergyStart(MPI_Comm comm, const TrsDeviceOps *device, TrsEnergy *energy);

/* What was used since the start. Collective on the communicator of the start. */
PetscErrorCode TrsEnergyRead(TrsEnergy energy, TrsEnergyUse *use);

/* End the thread and free. Sets *energy to NULL. Accepts NULL. Not collective. */
PetscErrorCode TrsEnergyStop(TrsEnergy *energy);
