/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for NVML: GPUs of one model, each of which has used 1 J more whenever it is asked. */
#include <string.h>

enum { TRS_N_GPUS = 4 };

static unsigned long long count_mj[TRS_N_GPUS];
static int is_open;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);

int nvmlInit_v2(void)
{
  is_open++;
  return 0;
}

int nvmlShutdown(void)
{
  return --is_open < 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
  static const char known[] = "GPU-00112233-4455-6677-8899-aabbccddeef";
  const size_t n = strlen(known);

  if (!is_open || strlen(uuid) != n + 1 || strncmp(uuid, known, n) != 0) return 2;
  if (uuid[n] < '0' || uuid[n] >= '0' + TRS_N_GPUS) return 6; /* not found */
  *device = &count_mj[uuid[n] - '0'];
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
  if (!is_open) return 1;
  *millijoules = *(unsigned long long *)device += 1000;
  return 0;
}
