/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/device_batch.h"

#include "device/timeline.h"

PetscErrorCode TrsDeviceBatchCreate(const TrsDeviceOps *device, TrsDeviceBatch *batch)
{
  PetscFunctionBegin;
  *batch = (TrsDeviceBatch){.host = NULL};
  PetscCall(device->event_create(&batch->copied));
  PetscCall(device->event_create(&batch->used));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Copy the ids. The host keeps the place where each feature's ids begin, so that no stage must ask
  the device for it.
*/
static PetscErrorCode copy_ids(const TrsDeviceOps *device, TrsStream stream, const TrsKjt *from,
                               TrsDeviceBatch *batch)
{
  const TrsJagged *source = &from->jagged;
  const int64_t n_values = source->n_values;
  TrsKjt *kjt = &batch->twin.kjt;
  int64_t *id_begin;

  PetscFunctionBegin;
  PetscCall(TrsKjtReserve(device, kjt, from->n_features, from->batch, n_values, from->is_weighted));
  PetscCall(device->copy(kjt->jagged.lengths, source->lengths,
                         source->n_bags * (int64_t)sizeof(*source->lengths), stream));
  PetscCall(device->copy(kjt->jagged.offsets, source->offsets,
                         (source->n_bags + 1) * (int64_t)sizeof(*source->offsets), stream));
  PetscCall(
      device->copy(kjt->jagged.values, source->values, n_values * (int64_t)sizeof(*source->values), stream));
  if (from->is_weighted)
    PetscCall(device->copy(kjt->jagged.weights, source->weights, n_values * (int64_t)sizeof(*source->weights),
                           stream));
  PetscCall(
      TrsBufferReserve(&batch->id_begin, (from->n_features + 1) * (int64_t)sizeof(*id_begin), PETSC_FALSE));
  id_begin = (int64_t *)batch->id_begin.data;
  for (int f = 0; f <= from->n_features; f++) id_begin[f] = source->offsets[f * from->batch];
  kjt->id_begin = id_begin;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeviceBatchCopy(const TrsDeviceOps *device, TrsStream stream, const TrsBatch *host,
                                  int num_dense, TrsDeviceBatch *batch)
{
  const int64_t dense_bytes = host->batch * num_dense * (int64_t)sizeof(*host->dense);
  const int64_t weight_bytes = host->batch * (int64_t)sizeof(*host->weights);
  const int64_t label_bytes = host->batch * host->n_labels * (int64_t)sizeof(*host->labels);
  /* NULL would say that there are none. */
  const int64_t more = (int64_t)sizeof(float);
  TrsKjt kept = batch->twin.kjt;

  PetscFunctionBegin;
  batch->host = host;
  batch->batch = host;
  if (device->host_memory) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(device->stream_wait(stream, batch->used));
  PetscCall(TrsTimelineMark(TRS_TRACE_MEMCPY, stream, TRS_TRACE_COPY));
  batch->twin = *host;
  batch->twin.kjt = kept;
  batch->batch = &batch->twin;
  PetscCall(copy_ids(device, stream, &host->kjt, batch));
  if (num_dense) {
    PetscCall(TrsDeviceBufferReserve(device, &batch->dense, dense_bytes));
    PetscCall(device->copy(batch->dense.data, host->dense, dense_bytes, stream));
    batch->twin.dense = (float *)batch->dense.data;
  }
  if (host->labels) {
    PetscCall(TrsDeviceBufferReserve(device, &batch->labels, label_bytes + more));
    PetscCall(device->copy(batch->labels.data, host->labels, label_bytes, stream));
    batch->twin.labels = (float *)batch->labels.data;
  }
  if (host->weights) {
    PetscCall(TrsDeviceBufferReserve(device, &batch->weights, weight_bytes + more));
    PetscCall(device->copy(batch->weights.data, host->weights, weight_bytes, stream));
    batch->twin.weights = (float *)batch->weights.data;
  }
  PetscCall(TrsTimelineMark(TRS_TRACE_MEMCPY, stream, TRS_STAGE_NONE));
  PetscCall(device->event_record(batch->copied, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeviceBatchDestroy(const TrsDeviceOps *device, TrsDeviceBatch *batch)
{
  PetscFunctionBegin;
  PetscCall(TrsKjtFree(device, &batch->twin.kjt));
  PetscCall(TrsDeviceBufferFree(device, &batch->dense));
  PetscCall(TrsDeviceBufferFree(device, &batch->labels));
  PetscCall(TrsDeviceBufferFree(device, &batch->weights));
  PetscCall(TrsBufferFree(&batch->id_begin));
  PetscCall(device->event_destroy(&batch->copied));
  PetscCall(device->event_destroy(&batch->used));
  PetscFunctionReturn(PETSC_SUCCESS);
}
