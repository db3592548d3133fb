/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A batch in device memory. It is assembled of a copy of the reader's batch, which lies in pinned
  host memory, on a stream of its own. On a CPU it is the reader's batch itself.

  The event `copied` is recorded when the twin is complete, for the streams that read it. The event
  `used` must be recorded when nothing reads the twin any more, for the next copy into it.
*/
#pragma once

#include "compute/compute_ops.h"
#include "data/reader.h"

typedef struct {
  const TrsBatch *host; /* the batch that was copied, or NULL if the place is free */
  TrsBatch twin;
  const TrsBatch *batch;  /* the twin, or on a CPU the reader's batch */
  TrsDeviceBuffer memory; /* a copy of the reader's */
  TrsBuffer id_begin;     /* beginnings of the features' ids in the twin's KJT */
  TrsEvent copied, used;
} TrsDeviceBatch;

PetscErrorCode TrsDeviceBatchCreate(const TrsDeviceOps *device, TrsDeviceBatch *batch);

/*
  TrsDeviceBatchCopy - Start the copy of a batch, and make a KJT of its samples. A batch that has a
    KJT has nothing else (a caller's of the library).

  Not collective.

  In:    host       borrowed; its arrays must stay as they are until the copy is complete
         stream     the stream of copies
  InOut: workspace  for all batches of this stream
*/
PetscErrorCode TrsDeviceBatchCopy(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                  TrsWorkspace workspace, const TrsBatch *host, TrsDeviceBatch *batch);
PetscErrorCode TrsDeviceBatchDestroy(const TrsDeviceOps *device, TrsDeviceBatch *batch);
