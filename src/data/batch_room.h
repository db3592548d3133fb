/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The memory of batches and of their assembly. Internal to data/.

  A batch for a CPU has its ids in a KJT, and the file's rows pass through a reader thread's scratch
  memory. A batch for a device lies in one piece of memory in the file's layout, and the device
  copies this piece.
*/
#pragma once

#include "data/batch.h"

typedef struct {
  TrsDeviceBuffer memory;
  TrsFileSamples file; /* in `memory`, if a device assembles the batch */
  int64_t n_values;    /* number of ids that fit */
} TrsBatchRoom;

/*
  TrsBatchRoomReserve - Make room for a batch of max_batch samples and n_values ids, and set the
    batch's arrays. Data that the first half (TrsBatchReadSamples()) has read is kept, but may move.

  Not collective, main thread only.

  In:  memory  TrsDeviceStaging() of the batch's device
*/
PetscErrorCode TrsBatchRoomReserve(const TrsBatchSpec *spec, const TrsDeviceOps *memory, int64_t max_batch,
                                   int64_t n_values, TrsBatchRoom *room, TrsBatch *batch);
PetscErrorCode TrsBatchRoomFree(const TrsDeviceOps *memory, TrsBatchRoom *room, TrsBatch *batch);

/*
  Let a device's batch be read into its room. The reader's thread must call this before each of the
  two halves. Before the second half, scratch->n_values must be known.
*/
void TrsBatchRoomUse(const TrsBatchSpec *spec, TrsBatchRoom *room, TrsBatchScratch *scratch, TrsBatch *batch);

/* Not collective, main thread only. */
PetscErrorCode TrsBatchScratchCreate(const TrsBatchSpec *spec, int64_t max_batch, TrsBatchScratch *scratch);
PetscErrorCode TrsBatchScratchReserve(const TrsBatchSpec *spec, TrsBatchScratch *scratch, int64_t n_values);
PetscErrorCode TrsBatchScratchFree(const TrsBatchSpec *spec, TrsBatchScratch *scratch);
