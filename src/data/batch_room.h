/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The memory of batches and of their assembly. Internal to data/.

  A batch for a CPU has its ids in a KJT; a reader thread's scratch memory has the file's rows. A
  batch for a device with its own memory is one block of memory in the file's layout, which the
  device copies.
*/
#pragma once

#include "data/batch.h"

typedef struct {
  TrsDeviceBuffer memory;
  TrsFileSamples file; /* in `memory`; used if a device assembles the batch */
  int64_t n_values;    /* number of ids for which there is space */
} TrsBatchRoom;

/*
  TrsBatchRoomReserve - Allocate memory for a batch of max_batch samples and n_values ids, and set
    the batch's arrays. Data that TrsBatchReadSamples() has read is kept, but its addresses may
    change.

  Not collective, main thread only.

  In:  memory  TrsDeviceStaging() of the batch's device
*/
PetscErrorCode TrsBatchRoomReserve(const TrsBatchSpec *spec, const TrsDeviceOps *memory, int64_t max_batch,
                                   int64_t n_values, TrsBatchRoom *room, TrsBatch *batch);
PetscErrorCode TrsBatchRoomFree(const TrsDeviceOps *memory, TrsBatchRoom *room, TrsBatch *batch);

/*
  Let a batch for a device be read directly into its memory. The reader's thread must call this
  function before each of the two halves. Before the second half, scratch->n_values must be set.
*/
void TrsBatchRoomUse(const TrsBatchSpec *spec, TrsBatchRoom *room, TrsBatchScratch *scratch, TrsBatch *batch);

/* Create, enlarge and free scratch memory. Not collective, main thread only. */
PetscErrorCode TrsBatchScratchCreate(const TrsBatchSpec *spec, int64_t max_batch, TrsBatchScratch *scratch);
PetscErrorCode TrsBatchScratchReserve(const TrsBatchSpec *spec, TrsBatchScratch *scratch, int64_t n_values);
PetscErrorCode TrsBatchScratchFree(const TrsBatchSpec *spec, TrsBatchScratch *scratch);
