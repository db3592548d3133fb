/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The memory of batches and of their assembly. Internal to data/.

  A batch for a CPU has its ids in a KJT, and the rows of the file pass through the scratch memory
  of a reader's thread. A batch for a device has all in one piece of memory, as the file has it,
  which is what the device copies.
*/
#pragma once

#include "data/batch.h"

typedef struct {
  TrsDeviceBuffer memory;
  TrsFileSamples file; /* in `memory`, if a device assembles the batch */
  int64_t n_values;    /* ids that fit */
} TrsBatchRoom;

/*
  TrsBatchRoomReserve - Make room for a batch of max_batch samples and n_values ids, and set the
    batch's arrays. What a first half has read stays (TrsBatchReadSamples()), though it may move.

  Not collective, main thread only.

  In:  memory  TrsDeviceStaging() of the batch's device
*/
PetscErrorCode TrsBatchRoomReserve(const TrsBatchSpec *spec, const TrsDeviceOps *memory, int64_t max_batch,
                                   int64_t n_values, TrsBatchRoom *room, TrsBatch *batch);
PetscErrorCode TrsBatchRoomFree(const TrsDeviceOps *memory, TrsBatchRoom *room, TrsBatch *batch);

/*
  Let a device's batch be read into its room: before each of the halves, on a thread of the
  reader's. Before the second one scratch->n_values is known.
*/
void TrsBatchRoomUse(const TrsBatchSpec *spec, TrsBatchRoom *room, TrsBatchScratch *scratch, TrsBatch *batch);

/* Not collective, main thread only. */
PetscErrorCode TrsBatchScratchCreate(const TrsBatchSpec *spec, int64_t max_batch, TrsBatchScratch *scratch);
PetscErrorCode TrsBatchScratchReserve(const TrsBatchSpec *spec, TrsBatchScratch *scratch, int64_t n_values);
PetscErrorCode TrsBatchScratchFree(const TrsBatchSpec *spec, TrsBatchScratch *scratch);
