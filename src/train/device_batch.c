/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/device_batch.h"

#include "device/timeline.h"

#include <string.h>

PetscErrorCode TrsDeviceBatchCreate(const TrsDeviceOps *device, TrsDeviceBatch *batch)
{
  PetscFunctionBegin;
  *batch = (TrsDeviceBatch){.host = NULL};
  PetscCall(device->event_create(&batch->copied));
  PetscCall(device->event_create(&batch->used));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy a caller's KJT. Its offsets give the index of each feature's first id. */
static PetscErrorCode copy_kjt(const TrsDeviceOps *device, TrsStream stream, const TrsKjt *from, TrsKjt *kjt,
                               int64_t *id_begin)
{
  const TrsJagged *source = &from->jagged;
  const int64_t n_values = source->n_values;

  PetscFunctionBegin;
  PetscCall(device->copy(kjt->jagged.lengths, source->lengths,
                         source->n_bags * (int64_t)sizeof(*source->lengths), stream));
  PetscCall(device->copy(kjt->jagged.offsets, source->offsets,
                         (source->n_bags + 1) * (int64_t)sizeof(*source->offsets), stream));
  PetscCall(
      device->copy(kjt->jagged.values, source->values, n_values * (int64_t)sizeof(*source->values), stream));
  if (from->is_weighted)
    PetscCall(device->copy(kjt->jagged.weights, source->weights, n_values * (int64_t)sizeof(*source->weights),
                           stream));
  for (int f = 0; f <= from->n_features; f++) id_begin[f] = source->offsets[f * from->batch];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The address that an array of the reader's batch has in the copy of the batch's memory. */
static void *in_copy(const TrsBatch *host, const TrsDeviceBatch *batch, const void *array)
{
  return array ? (char *)batch->memory.data + ((const char *)array - (const char *)host->memory) : NULL;
}

/* Copy the memory of the reader's batch in one piece, and assemble the ids from it. */
static PetscErrorCode copy_samples(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                   TrsWorkspace workspace, const TrsBatch *host, TrsDeviceBatch *batch)
{
  TrsSamples samples = host->samples;
  TrsBatch *twin = &batch->twin;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(device, &batch->memory, host->memory_bytes));
  PetscCall(device->copy(batch->memory.data, host->memory, host->memory_bytes, stream));
  twin->dense = in_copy(host, batch, host->dense);
  twin->labels = in_copy(host, batch, host->labels);
  twin->weights = in_copy(host, batch, host->weights);
  samples.lengths = in_copy(host, batch, samples.lengths);
  samples.start = in_copy(host, batch, samples.start);
  samples.sample = in_copy(host, batch, samples.sample);
  samples.values = in_copy(host, batch, samples.values);
  samples.weights = in_copy(host, batch, samples.weights);
  PetscCall(compute->assemble(stream, workspace, &samples, host->kjt.n_features, host->features,
                              &twin->kjt.jagged, host->odd));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeviceBatchCopy(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                  TrsWorkspace workspace, const TrsBatch *host, TrsDeviceBatch *batch)
{
  const TrsKjt *from = &host->kjt;
  const int64_t begin_bytes = (from->n_features + 1) * (int64_t)sizeof(int64_t);
  const TrsKjt kept = batch->twin.kjt;
  TrsKjt *kjt = &batch->twin.kjt;

  PetscFunctionBegin;
  batch->host = host;
  batch->batch = host;
  if (device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(device->stream_wait(stream, batch->used));
  PetscCall(TrsTimelineMark(TRS_TRACE_MEMCPY, stream, TRS_TRACE_COPY));
  batch->twin = *host;
  batch->twin.kjt = kept;
  batch->batch = &batch->twin;
  PetscCall(
      TrsKjtReserve(device, kjt, from->n_features, from->batch, from->jagged.n_values, from->is_weighted));
  /* The host keeps the index of each feature's first id, so that it need not ask the device for
     it. */
  PetscCall(TrsBufferReserve(&batch->id_begin, begin_bytes, PETSC_FALSE));
  kjt->id_begin = (const int64_t *)batch->id_begin.data;
  if (host->features) {
    memcpy(batch->id_begin.data, from->id_begin, (size_t)begin_bytes);
    PetscCall(copy_samples(device, compute, stream, workspace, host, batch));
  } else {
    PetscCall(copy_kjt(device, stream, from, kjt, (int64_t *)batch->id_begin.data));
  }
  PetscCall(TrsTimelineMark(TRS_TRACE_MEMCPY, stream, TRS_STAGE_NONE));
  PetscCall(device->event_record(batch->copied, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeviceBatchDestroy(const TrsDeviceOps *device, TrsDeviceBatch *batch)
{
  PetscFunctionBegin;
  PetscCall(TrsKjtFree(device, &batch->twin.kjt));
  PetscCall(TrsDeviceBufferFree(device, &batch->memory));
  PetscCall(TrsBufferFree(&batch->id_begin));
  PetscCall(device->event_destroy(&batch->copied));
  PetscCall(device->event_destroy(&batch->used));
  PetscFunctionReturn(PETSC_SUCCESS);
}
