/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Threads that predict requests. Requests that wait at the same time are predicted together, as one
  batch. A batch ends before it has more than -serve_batch samples. It also waits for further
  requests until -serve_batch_microseconds have passed since its first request came.
*/
#pragma once

#include "serve/metrics.h"
#include "serve/model_slot.h"
#include "serve/request.h"

typedef struct {
  int64_t threads; /* at least 1 */
  int64_t batch;   /* largest number of samples of a batch that has several requests */
  double wait_s;   /* longest time for which a batch waits for further requests */
} TrsServeBatching;

typedef struct TrsServeBatcherImpl *TrsServeBatcher;

/*
  Create a batcher and start its threads. `slot` and `metrics` are borrowed. Not collective. Errors:
  MEMORY
*/
PetscErrorCode TrsServeBatcherCreate(const TrsServeBatching *how, TrsServeSlot slot, TrsServeMetrics *metrics,
                                     TrsServeBatcher *batcher);

/*
  Finish the batches that are being predicted, and end the threads. Requests that wait, and those
  that are submitted later, get status 503. Accepts NULL.
*/
void TrsServeBatcherEnd(TrsServeBatcher batcher);

/* End the batcher, and free it. Nothing may be submitted any more. Accepts NULL. */
PetscErrorCode TrsServeBatcherDestroy(TrsServeBatcher *batcher);

/*
  Predict a request later. The batcher sets request->outcome, predictions and step, and calls
  request->done. Until then the request belongs to the batcher. Any thread may call this.
*/
void TrsServeSubmit(TrsServeBatcher batcher, TrsServeRequest *request);
