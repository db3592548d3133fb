/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/energy.h"

#include "device/cpu_bind.h"
#include "device/energy_counters.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A counter of 32 bits in units of 15 uJ wraps around after 65 kJ: 160 s at 400 W. */
enum { TRS_LOOK_SECONDS = 30, TRS_IDENTITY_BYTES = 128 };

struct TrsEnergyImpl {
  MPI_Comm comm;
  PetscBool reads; /* this rank is the first of its host */

  /* RAPL of this host. The lock guards the counters and what they have counted. */
  TrsRaplCounter *rapl;
  int n_rapl;
  double rapl_j; /* negative once a counter could not be read */
  pthread_mutex_t lock;
  pthread_cond_t ended;
  pthread_t thread;
  PetscBool has_thread, done;

  /* GPUs of this host's ranks */
  char *identity_bytes; /* [ranks of the host][TRS_IDENTITY_BYTES] */
  const char **gpus;    /* [n_gpus] distinct ones, in identity_bytes */
  int n_gpus;
  PetscBool gpus_known; /* NVML could be asked for all of them at the start */
  uint64_t gpu_start_mj;
};

/* With the lock held. */
static void look(TrsEnergy e)
{
  for (int i = 0; i < e->n_rapl && e->rapl_j >= 0; i++) {
    const double joules = TrsRaplAdvance(&e->rapl[i]);

    e->rapl_j = joules < 0 ? joules : e->rapl_j + joules;
  }
}

static void *keep_looking(void *argument)
{
  TrsEnergy e = (TrsEnergy)argument;

  TrsCpuHelps();
  pthread_mutex_lock(&e->lock);
  while (!e->done) {
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += TRS_LOOK_SECONDS;
    while (!e->done && pthread_cond_timedwait(&e->ended, &e->lock, &until) != ETIMEDOUT) continue;
    look(e);
  }
  pthread_mutex_unlock(&e->lock);
  return NULL;
}

/* Without a thread, for lack of memory, nothing is told rather than something wrong. */
static PetscErrorCode start_rapl(TrsEnergy e)
{
  const char *const folder = getenv("TRSHARD_RAPL");
  sigset_t all, before;
  int failed;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(TRS_MAX_ENERGY_COUNTERS, &e->rapl));
  e->n_rapl = TrsRaplFind(folder ? folder : "/sys/class/powercap", TRS_MAX_ENERGY_COUNTERS, e->rapl);
  if (e->n_rapl == 0) PetscFunctionReturn(PETSC_SUCCESS);
  sigfillset(&all); /* signals are for the main thread */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  failed = pthread_create(&e->thread, NULL, keep_looking, e);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  e->has_thread = (PetscBool)!failed;
  if (failed) e->n_rapl = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The distinct GPUs of a host's ranks, to its first rank. Collective on host. */
static PetscErrorCode gather_gpus(TrsEnergy e, MPI_Comm host, const TrsDeviceOps *device)
{
  char mine[TRS_IDENTITY_BYTES] = "";
  int size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(host, &size));
  PetscCall(device->identity(mine, sizeof(mine)));
  PetscCall(PetscCalloc1((size_t)size * TRS_IDENTITY_BYTES, &e->identity_bytes));
  PetscCall(PetscCalloc1((size_t)size, &e->gpus));
  PetscCallMPI(MPI_Gather(mine, TRS_IDENTITY_BYTES, MPI_CHAR, e->identity_bytes, TRS_IDENTITY_BYTES, MPI_CHAR,
                          0, host));
  for (int r = 0; e->reads && r < size; r++) {
    const char *const gpu = e->identity_bytes + (size_t)r * TRS_IDENTITY_BYTES;
    int i = 0;

    while (i < e->n_gpus && strcmp(e->gpus[i], gpu) != 0) i++;
    if (gpu[0] && i == e->n_gpus) e->gpus[e->n_gpus++] = gpu;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEnergyStart(MPI_Comm comm, const TrsDeviceOps *device, TrsEnergy *energy)
{
  pthread_condattr_t clock;
  MPI_Comm host;
  TrsEnergy e;
  int rank;

  PetscFunctionBegin;
  PetscCall(PetscNew(&e));
  PetscCallMPI(MPI_Comm_dup(comm, &e->comm));
  PetscCheck(pthread_condattr_init(&clock) == 0 && pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0 &&
                 pthread_mutex_init(&e->lock, NULL) == 0 && pthread_cond_init(&e->ended, &clock) == 0,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "cannot make the lock of the energy counters");
  pthread_condattr_destroy(&clock);
  PetscCallMPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  PetscCallMPI(MPI_Comm_rank(host, &rank));
  e->reads = (PetscBool)(rank == 0);
  PetscCall(gather_gpus(e, host, device));
  PetscCallMPI(MPI_Comm_free(&host));
  if (e->reads) PetscCall(start_rapl(e));
  if (e->n_gpus) e->gpus_known = TrsNvmlEnergy(e->n_gpus, e->gpus, &e->gpu_start_mj);
  *energy = e;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEnergyRead(TrsEnergy e, TrsEnergyUse *use)
{
  double joules[2] = {0, 0}; /* of processors, of GPUs */
  int unknown[3] = {0, 0, 0}, n_gpus;

  PetscFunctionBegin;
  if (e->reads) {
    pthread_mutex_lock(&e->lock);
    look(e);
    joules[0] = e->rapl_j;
    pthread_mutex_unlock(&e->lock);
    unknown[0] = e->n_rapl == 0 || joules[0] < 0;
  }
  if (e->n_gpus) {
    uint64_t now_mj = 0;
    const PetscBool known = (PetscBool)(e->gpus_known && TrsNvmlEnergy(e->n_gpus, e->gpus, &now_mj));

    unknown[1] = !known || now_mj < e->gpu_start_mj; /* a reloaded driver counts from 0 */
    if (!unknown[1]) joules[1] = 1e-3 * (double)(now_mj - e->gpu_start_mj);
  }
  unknown[2] = e->n_gpus;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, joules, 2, MPI_DOUBLE, MPI_SUM, e->comm));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, unknown, 3, MPI_INT, MPI_SUM, e->comm));
  n_gpus = unknown[2];
  use->cpu_j = unknown[0] ? -1 : joules[0];
  use->gpu_j = unknown[1] || n_gpus == 0 ? -1 : joules[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEnergyStop(TrsEnergy *energy)
{
  TrsEnergy e = *energy;

  PetscFunctionBegin;
  if (!e) PetscFunctionReturn(PETSC_SUCCESS);
  if (e->has_thread) {
    pthread_mutex_lock(&e->lock);
    e->done = PETSC_TRUE;
    pthread_cond_signal(&e->ended);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
  }
  pthread_cond_destroy(&e->ended);
  pthread_mutex_destroy(&e->lock);
  PetscCall(PetscFree(e->identity_bytes));
  PetscCall(PetscFree(e->gpus));
  PetscCall(PetscFree(e->rapl));
  PetscCallMPI(MPI_Comm_free(&e->comm));
  PetscCall(PetscFree(*energy));
  PetscFunctionReturn(PETSC_SUCCESS);
}
