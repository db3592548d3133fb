/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A batch in device memory, the twin. It is assembled from a copy of the reader's batch, which is in
  pinned host memory. The copy has a separate stream. On a CPU the twin is the reader's batch
  itself.

  The event `copied` is recorded when the twin is complete. Streams that read the twin must wait for
  it. The event `used` must be recorded after the last read of the twin. The next copy waits for it.
*/
#pragma once

#include "compute/compute_ops.h"
#include "data/reader.h"

typedef struct {
  const TrsBatch *host; /* the batch that is copied; NULL: the twin is free */
  TrsBatch twin;
  const TrsBatch *batch;  /* the twin, or on a CPU the reader's batch */
  TrsDeviceBuffer memory; /* a copy of the reader's memory */
  TrsBuffer id_begin;     /* index of each feature's first id in the twin's KJT */
  TrsEvent copied, used;
} TrsDeviceBatch;

PetscErrorCode TrsDeviceBatchCreate(const TrsDeviceOps *device, TrsDeviceBatch *batch);

/*
  TrsDeviceBatchCopy - Start the copy of a batch, and make a KJT from its samples. A batch that
    already has a KJT, from a caller of the library, has no other arrays.

  Not collective.

  In:    host       borrowed; its arrays must not change until the copy is complete
         stream     the stream on which batches are copied
  InOut: workspace  the same for all batches of this stream
*/
PetscErrorCode TrsDeviceBatchCopy(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                  TrsWorkspace workspace, const TrsBatch *host, TrsDeviceBatch *batch);
PetscErrorCode TrsDeviceBatchDestroy(const TrsDeviceOps *device, TrsDeviceBatch *batch);
