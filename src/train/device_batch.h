/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A batch in device memory. It is a copy of the reader's batch in pinned host memory, made on a
  stream of its own. On a CPU it is the reader's batch itself.

  The event `copied` is recorded when the twin is complete, for the streams that read it. The event
  `used` must be recorded when nothing reads the twin any more, for the next copy into it.
*/
#pragma once

#include "data/reader.h"

typedef struct {
  const TrsBatch *host; /* the batch that was copied, or NULL if the place is free */
  TrsBatch twin;
  const TrsBatch *batch; /* the twin, or on a CPU the reader's batch */
  TrsDeviceBuffer dense, labels, weights;
  TrsBuffer id_begin; /* beginnings of the features' ids in the twin's KJT */
  TrsEvent copied, used;
} TrsDeviceBatch;

PetscErrorCode TrsDeviceBatchCreate(const TrsDeviceOps *device, TrsDeviceBatch *batch);

/*
  TrsDeviceBatchCopy - Start the copy of a batch.

  Not collective.

  In: host       borrowed; its arrays must stay as they are until the copy is complete
      num_dense  columns of host->dense
      stream     the stream of copies
*/
PetscErrorCode TrsDeviceBatchCopy(const TrsDeviceOps *device, TrsStream stream, const TrsBatch *host,
                                  int num_dense, TrsDeviceBatch *batch);
PetscErrorCode TrsDeviceBatchDestroy(const TrsDeviceOps *device, TrsDeviceBatch *batch);
