/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A batch in device memory: what the reader left in pinned host memory, copied on a stream of its own. On a CPU it is the reader's batch itself.

  copied: recorded when the twin is complete, for the streams that read it. used: to be recorded when nothing reads it any more, for the next copy into it.
*/
#pragma once

#include "data/reader.h"

typedef struct {
  const TrsBatch *host; /* what was copied; NULL: nothing, the place is free */
  TrsBatch twin;
  const TrsBatch *batch; /* the twin, or on a CPU host */
  TrsDeviceBuffer dense, labels, weights;
  TrsBuffer id_begin; /* of the twin's KJT */
  TrsEvent copied, used;
} TrsDeviceBatch;

PetscErrorCode TrsDeviceBatchCreate(const TrsDeviceOps *device, TrsDeviceBatch *batch);

/*
  TrsDeviceBatchCopy - Start the copy of a batch.

  Not collective. In: host  borrowed; its arrays must stay as they are until the copy is complete
                      num_dense  columns of host->dense
                      stream     of copies
*/
PetscErrorCode TrsDeviceBatchCopy(const TrsDeviceOps *device, TrsStream stream, const TrsBatch *host,
                                  int num_dense, TrsDeviceBatch *batch);
PetscErrorCode TrsDeviceBatchDestroy(const TrsDeviceOps *device, TrsDeviceBatch *batch);
