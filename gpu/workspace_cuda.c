/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/workspace_cuda.h"

#include "gpu/compute_cuda.h"
#include "gpu/cuda_error.h"
#include "gpu/device/device_cuda.h"

#include <string.h>

static const TrsDeviceOps *const device = &trs_device_cuda;

PetscErrorCode TrsWorkspaceCreateCuda(TrsWorkspace *workspace)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsWorkspaceDestroyCuda(TrsWorkspace *workspace)
{
  TrsWorkspace w = *workspace;

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_CUDA_N_SCRATCH; i++) PetscCall(TrsDeviceBufferFree(device, &w->scratch[i]));
  for (int i = 0; i < TRS_CUDA_N_UPLOADS; i++) {
    PetscCall(TrsDeviceBufferFree(device, &w->upload[i].device));
    for (int k = 0; k < TRS_CUDA_IN_TURN; k++) {
      PetscCall(device->release_host(&w->upload[i].host[k]));
      PetscCall(device->event_destroy(&w->upload[i].copied[k]));
    }
    PetscCall(TrsBufferFree(&w->host[i]));
  }
  PetscCall(device->release_host(&w->answer));
  PetscCall(PetscFree(*workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaScratch(TrsWorkspace workspace, int which, int64_t n, size_t size,
                              void *pointer_to_pointer)
{
  TrsDeviceBuffer *buffer = &workspace->scratch[which];
  const int64_t bytes = PetscMax(n, 1) * (int64_t)size;

  PetscFunctionBegin;
  if (bytes > buffer->capacity_bytes) {
    const int64_t capacity_bytes = PetscMax(bytes, buffer->capacity_bytes + buffer->capacity_bytes / 2);

    PetscCall(TrsDeviceBufferFree(device, buffer));
    PetscCall(TrsCudaAllocUnset(capacity_bytes, &buffer->data));
    buffer->capacity_bytes = capacity_bytes;
  }
  *(void **)pointer_to_pointer = buffer->data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaHostScratch(TrsWorkspace workspace, int which, int64_t n, size_t size,
                                  void *pointer_to_pointer)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&workspace->host[which], PetscMax(n, 1) * (int64_t)size, PETSC_FALSE));
  *(void **)pointer_to_pointer = workspace->host[which].data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reserve at least `bytes` of pinned memory. Its previous contents are lost. */
static PetscErrorCode reserve_host(int64_t bytes, int64_t *capacity_bytes, void **host)
{
  PetscFunctionBegin;
  if (bytes <= *capacity_bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(device->release_host(host));
  *capacity_bytes = PetscMax(bytes, 2 * *capacity_bytes);
  PetscCall(device->alloc_host(*capacity_bytes, host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaUploadArray(TrsWorkspace workspace, int which, TrsStream stream, int64_t bytes,
                                  const void *host, void *pointer_to_pointer)
{
  TrsCudaUpload *upload = &workspace->upload[which];
  int k = upload->current;

  PetscFunctionBegin;
  if (bytes > 0 && (bytes != upload->bytes || memcmp(host, upload->host[k], (size_t)bytes) != 0)) {
    upload->current = k = (k + 1) % TRS_CUDA_IN_TURN;
    if (upload->copied[k])
      PetscCall(TrsCudaEventWait(TrsEventCuda(upload->copied[k])));
    else
      PetscCall(device->event_create(&upload->copied[k]));
    PetscCall(reserve_host(bytes, &upload->capacity_bytes[k], &upload->host[k]));
    PetscCall(TrsDeviceBufferReserve(device, &upload->device, upload->capacity_bytes[k]));
    memcpy(upload->host[k], host, (size_t)bytes);
    upload->bytes = bytes;
    PetscCall(device->copy(upload->device.data, upload->host[k], bytes, stream));
    PetscCall(device->event_record(upload->copied[k], stream));
  }
  *(void **)pointer_to_pointer = upload->device.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaAnswer(TrsWorkspace workspace, TrsStream stream, int64_t bytes, const void *from,
                             void *host)
{
  PetscFunctionBegin;
  PetscCall(reserve_host(bytes, &workspace->answer_bytes, &workspace->answer));
  PetscCall(device->copy(workspace->answer, from, bytes, stream));
  PetscCall(device->stream_synchronize(stream));
  memcpy(host, workspace->answer, (size_t)bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}
