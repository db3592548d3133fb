/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The CPU as a device. Its memory is host memory, the work of a call is done when the call returns,
  and events are always complete.
*/
#include "device/device_cpu.h"

#include "core/buffer.h"
#include "core/shared_memory.h"
#include "device/host_memory.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
  Set this process's number of threads. If OMP_NUM_THREADS is set, it is the number. If not, the
  number is that of the cores to which the launcher bound the process; without such a binding, it is
  the process's share of the host's cores. OpenMP's default would give every rank all cores, and
  ranks that spin on each other's cores run ten times slower.
*/
static PetscErrorCode setup_cpu(int local_rank, int local_size)
{
  const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  int mine = omp_get_num_procs(); /* number of cores on which the process may run */

  PetscFunctionBegin;
  (void)local_rank;
  if (getenv("OMP_NUM_THREADS")) PetscFunctionReturn(PETSC_SUCCESS);
  if (mine == cores) mine = cores / local_size;
  omp_set_num_threads(PetscMax(mine, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode available_cpu(int *n_devices, char *why_not, size_t why_not_size)
{
  PetscFunctionBegin;
  if (why_not_size > 0) why_not[0] = '\0';
  *n_devices = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode identity_cpu(char *name, size_t size)
{
  PetscFunctionBegin;
  if (size > 0) name[0] = '\0';
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode memory_cpu(int64_t *free_bytes, int64_t *total_bytes)
{
  const TrsHostMemory memory = TrsHostMemoryGet("");

  PetscFunctionBegin;
  *free_bytes = memory.free_bytes;
  *total_bytes = memory.total_bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alloc_cpu(int64_t bytes, void **pointer)
{
  PetscFunctionBegin;
  PetscCall(TrsAlloc(bytes, 1, pointer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode alloc_shared_cpu(int64_t bytes, void **pointer)
{
  PetscFunctionBegin;
  PetscCall(TrsSharedAlloc(bytes, pointer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_cpu(void **pointer)
{
  PetscFunctionBegin;
  if (!TrsSharedRelease(pointer)) PetscCall(TrsFree(pointer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_cpu(void *to, const void *from, int64_t bytes, TrsStream stream)
{
  PetscFunctionBegin;
  (void)stream;
  if (bytes > 0) memmove(to, from, (size_t)bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode zero_cpu(void *to, int64_t bytes, TrsStream stream)
{
  PetscFunctionBegin;
  (void)stream;
  if (bytes > 0) memset(to, 0, (size_t)bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stream_create_cpu(const char *name, TrsStream *stream)
{
  PetscFunctionBegin;
  (void)name;
  *stream = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stream_destroy_cpu(TrsStream *stream)
{
  PetscFunctionBegin;
  *stream = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stream_synchronize_cpu(TrsStream stream)
{
  PetscFunctionBegin;
  (void)stream;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode event_create_cpu(TrsEvent *event)
{
  PetscFunctionBegin;
  *event = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode event_destroy_cpu(TrsEvent *event)
{
  PetscFunctionBegin;
  *event = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode event_record_cpu(TrsEvent event, TrsStream stream)
{
  PetscFunctionBegin;
  (void)event;
  (void)stream;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stream_wait_cpu(TrsStream stream, TrsEvent event)
{
  PetscFunctionBegin;
  (void)stream;
  (void)event;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsDeviceOps trs_device_cpu = {
    .name = "cpu",
    .host_memory = PETSC_TRUE,
    .available = available_cpu,
    .setup = setup_cpu,
    .identity = identity_cpu,
    .memory = memory_cpu,
    .alloc = alloc_cpu,
    .alloc_shared = alloc_shared_cpu,
    .release = release_cpu,
    .alloc_host = alloc_cpu,
    .release_host = release_cpu,
    .copy = copy_cpu,
    .zero = zero_cpu,
    .stream_create = stream_create_cpu,
    .stream_destroy = stream_destroy_cpu,
    .stream_synchronize = stream_synchronize_cpu,
    .event_create = event_create_cpu,
    .event_destroy = event_destroy_cpu,
    .event_record = event_record_cpu,
    .stream_wait = stream_wait_cpu,
};
