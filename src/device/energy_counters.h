/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters of one host: RAPL's files and NVML's GPUs. Internal to device/energy.c. */
#pragma once

#include "core/error.h"

enum { TRS_MAX_ENERGY_COUNTERS = 64, TRS_ENERGY_PATH = 512 };

/* A file of RAPL, which counts up to its range and begins again at 0. */
typedef struct {
  char path[TRS_ENERGY_PATH];
  uint64_t range_uj, last_uj;
} TrsRaplCounter;

/*
  Find the packages and memories of this host below a folder such as /sys/class/powercap, and read
  them once. Returns how many there are, at most n_max; 0 where one of them cannot be read, since a
  sum without it would be wrong. Not collective.
*/
int TrsRaplFind(const char *folder, int n_max, TrsRaplCounter *counters);

/* The joules since the last call, one wrap-around allowed; negative if the file cannot be read. */
double TrsRaplAdvance(TrsRaplCounter *counter);

/*
  Millijoules that these n GPUs have taken since their driver was loaded, together. An identity ends
  in "GPU-" and 32 hexadecimal digits. False where NVML or one of the GPUs cannot be asked.
*/
PetscBool TrsNvmlEnergy(int n, const char *const *identities, uint64_t *millijoules);
