/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A batch in device memory. It is assembled from a copy of the reader's batch, which is in pinned
  host memory, on a stream of its own. On a CPU it is the reader's batch itself.

  The event `copied` is recorded when the twin is complete; streams that read the twin must wait for
  it. The event `used` must be recorded after the twin's last read, for the next copy into it.
*/
#pragma once

#include "compute/compute_ops.h"
#include "data/reader.h"

typedef struct {
  const TrsBatch *host; /* the copied batch, or NULL if the place is free */
  TrsBatch twin;
  const TrsBatch *batch;  /* the twin, or on a CPU the reader's batch */
  TrsDeviceBuffer memory; /* a copy of the reader's memory */
  TrsBuffer id_begin;     /* start of each feature's ids in the twin's KJT */
  TrsEvent copied, used;
} TrsDeviceBatch;

PetscErrorCode TrsDeviceBatchCreate(const TrsDeviceOps *device, TrsDeviceBatch *batch);

/*
  TrsDeviceBatchCopy - Start the copy of a batch, and make a KJT from its samples. A batch with a
  KJT (from a caller of the library) has no other arrays.

  Not collective.

  In:    host       borrowed; its arrays must not change until the copy is complete
         stream     the stream for copies
  InOut: workspace  shared by all batches of this stream
*/
PetscErrorCode TrsDeviceBatchCopy(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                  TrsWorkspace workspace, const TrsBatch *host, TrsDeviceBatch *batch);
PetscErrorCode TrsDeviceBatchDestroy(const TrsDeviceOps *device, TrsDeviceBatch *batch);
