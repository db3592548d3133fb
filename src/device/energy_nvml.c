/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/energy_counters.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Of NVML's interface what is called here; it has not changed since GPUs count energy. */
typedef struct {
  int (*init)(void);
  int (*shutdown)(void);
  int (*handle_by_uuid)(const char *uuid, void **device);
  int (*total_energy)(void *device, unsigned long long *millijoules); /* Volta and later */
} TrsNvmlCalls;

static void *function_of(void *library, const char *name)
{
  return library ? dlsym(library, name) : NULL;
}

/* The library stays open: the driver's own code may hold threads. */
static PetscBool open_nvml(TrsNvmlCalls *nvml)
{
  void *const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

  *(void **)&nvml->init = function_of(library, "nvmlInit_v2");
  *(void **)&nvml->shutdown = function_of(library, "nvmlShutdown");
  *(void **)&nvml->handle_by_uuid = function_of(library, "nvmlDeviceGetHandleByUUID");
  *(void **)&nvml->total_energy = function_of(library, "nvmlDeviceGetTotalEnergyConsumption");
  return (PetscBool)(nvml->init && nvml->shutdown && nvml->handle_by_uuid && nvml->total_energy);
}

/* "... GPU-" and 32 digits, as NVML writes them: GPU-8-4-4-4-12. */
static PetscBool uuid_of(const char *identity, char uuid[64])
{
  const char *at = NULL, *digits;

  for (const char *next = strstr(identity, "GPU-"); next; next = strstr(next + 1, "GPU-")) at = next;
  if (!at || strlen(at) != 36) return PETSC_FALSE;
  digits = at + 4;
  (void)snprintf(uuid, 64, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", digits, digits + 8, digits + 12, digits + 16,
                 digits + 20);
  return PETSC_TRUE;
}

PetscBool TrsNvmlEnergy(int n, const char *const *identities, uint64_t *millijoules)
{
  PetscBool known = PETSC_TRUE;
  TrsNvmlCalls nvml;

  *millijoules = 0;
  if (!open_nvml(&nvml) || nvml.init() != 0) return PETSC_FALSE;
  for (int i = 0; known && i < n; i++) {
    unsigned long long count = 0;
    char uuid[64];
    void *device;

    known = (PetscBool)(uuid_of(identities[i], uuid) && nvml.handle_by_uuid(uuid, &device) == 0 &&
                        nvml.total_energy(device, &count) == 0);
    *millijoules += count;
  }
  (void)nvml.shutdown();
  return known;
}
