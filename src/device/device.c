/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/device.h"

#include "core/function_table.h"
#include "device/device_cpu.h"

#include <string.h>

const TrsDeviceOps *const trs_device_backends[] = {&trs_device_cpu,
#if defined(TRS_HAVE_CUDA)
                                                   &trs_device_cuda,
#endif
                                                   NULL};

PetscErrorCode TrsDeviceCheck(const TrsDeviceOps *ops)
{
  const TrsTableEntry entries[] = {
      TRS_TABLE_ENTRY(ops, name),           TRS_TABLE_ENTRY(ops, available),
      TRS_TABLE_ENTRY(ops, setup),          TRS_TABLE_ENTRY(ops, identity),
      TRS_TABLE_ENTRY(ops, memory),         TRS_TABLE_ENTRY(ops, alloc),
      TRS_TABLE_ENTRY(ops, release),        TRS_TABLE_ENTRY(ops, alloc_host),
      TRS_TABLE_ENTRY(ops, release_host),   TRS_TABLE_ENTRY(ops, copy),
      TRS_TABLE_ENTRY(ops, zero),           TRS_TABLE_ENTRY(ops, stream_create),
      TRS_TABLE_ENTRY(ops, stream_destroy), TRS_TABLE_ENTRY(ops, stream_synchronize),
      TRS_TABLE_ENTRY(ops, event_create),   TRS_TABLE_ENTRY(ops, event_destroy),
      TRS_TABLE_ENTRY(ops, event_record),   TRS_TABLE_ENTRY(ops, stream_wait)};

  PetscFunctionBegin;
  PetscCall(
      TrsFunctionTableCheck("-device", ops->name, entries, (int)(sizeof(entries) / sizeof(entries[0]))));
  PetscCheck(!ops->timed_event_create == !ops->clock_align && !ops->clock_align == !ops->timed_event_read &&
                 !ops->clock_align == !ops->timed_event_took,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "-device %s: it has some of timed_event_create, clock_align, timed_event_read and "
             "timed_event_took, which belong together",
             ops->name);
  PetscCheck(!ops->capture_start == !ops->capture_end && !ops->capture_start == !ops->graph_launch &&
                 !ops->capture_start == !ops->graph_destroy && !ops->capture_start == !ops->releases,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "-device %s: it has some of capture_start, capture_end, graph_launch, graph_destroy and "
             "releases, which belong together",
             ops->name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeviceFind(const char *name, const TrsDeviceOps **device)
{
  char known[128] = "";

  PetscFunctionBegin;
  for (int i = 0; trs_device_backends[i]; i++) {
    if (strcmp(trs_device_backends[i]->name, name) == 0) {
      *device = trs_device_backends[i];
      PetscCall(TrsDeviceCheck(*device));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    strncat(known, i ? ", " : "", sizeof(known) - strlen(known) - 1);
    strncat(known, trs_device_backends[i]->name, sizeof(known) - strlen(known) - 1);
  }
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, "-device %s: this build has %s", name, known);
}

typedef PetscErrorCode (*TrsAllocFunction)(int64_t bytes, void **pointer);

static TrsAllocFunction shared_or_own(const TrsDeviceOps *device)
{
  return device->alloc_shared ? device->alloc_shared : device->alloc;
}

TrsDeviceOps TrsDeviceStaging(const TrsDeviceOps *device)
{
  TrsDeviceOps host = *device;

  host.alloc = device->alloc_host;
  host.release = device->release_host;
  host.host_memory = PETSC_TRUE;
  return host;
}

PetscErrorCode TrsDeviceAllocShared(const TrsDeviceOps *device, int64_t bytes, void **pointer)
{
  PetscFunctionBegin;
  PetscCall(shared_or_own(device)(bytes, pointer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reserve(const TrsDeviceOps *device, TrsAllocFunction alloc, TrsDeviceBuffer *buffer,
                              int64_t bytes)
{
  int64_t capacity;

  PetscFunctionBegin;
  if (bytes <= buffer->capacity_bytes) PetscFunctionReturn(PETSC_SUCCESS);
  /* grow by at least half, so that there are few allocations */
  capacity = PetscMax(bytes, buffer->capacity_bytes + buffer->capacity_bytes / 2);
  PetscCall(TrsDeviceBufferFree(device, buffer));
  PetscCall(alloc(capacity, &buffer->data));
  buffer->capacity_bytes = capacity;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeviceBufferReserve(const TrsDeviceOps *device, TrsDeviceBuffer *buffer, int64_t bytes)
{
  PetscFunctionBegin;
  PetscCall(reserve(device, device->alloc, buffer, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeviceBufferReserveShared(const TrsDeviceOps *device, TrsDeviceBuffer *buffer,
                                            int64_t bytes)
{
  PetscFunctionBegin;
  PetscCall(reserve(device, shared_or_own(device), buffer, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeviceBufferFree(const TrsDeviceOps *device, TrsDeviceBuffer *buffer)
{
  PetscFunctionBegin;
  PetscCall(device->release(&buffer->data));
  buffer->capacity_bytes = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPinnedBufferReserve(const TrsDeviceOps *device, TrsPinnedBuffer *buffer, int64_t bytes)
{
  int64_t capacity;

  PetscFunctionBegin;
  if (bytes <= buffer->capacity_bytes) PetscFunctionReturn(PETSC_SUCCESS);
  capacity = PetscMax(bytes, buffer->capacity_bytes + buffer->capacity_bytes / 2);
  PetscCall(TrsPinnedBufferFree(device, buffer));
  PetscCall(device->alloc_host(capacity, &buffer->data));
  buffer->capacity_bytes = capacity;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPinnedBufferFree(const TrsDeviceOps *device, TrsPinnedBuffer *buffer)
{
  PetscFunctionBegin;
  if (buffer->data) PetscCall(device->release_host(&buffer->data));
  buffer->capacity_bytes = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
