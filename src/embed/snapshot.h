/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A snapshot of a state (io/state.h) at one step, which can be written to a file while the training
  goes on.

  Weights and optimizer states of tables are not copied at first. Before an update or a placement
  changes a row that the file still lacks, the row and its states are saved to a buffer
  (compute/changed_rows.h). The file gets the saved rows, and all other rows from their tables. All
  other tensors are copied when the snapshot is taken: dense layers, ids, and lists of rows.

  Rules for threads: one thread, the writer, calls the tensors' `give`. A mutex protects the buffer
  and the reading of rows. A thread may change a row only after it has found the row's bit clear, or
  has saved the row under the mutex. So the writer never reads a row while it changes.

  Memory: a bit for each row, the buffer, and a copy of the other tensors' parts that this rank
  writes. If the buffer is full, updates wait until the writer has written rows.
*/
#pragma once

#include "embed/embedding_shards.h"

typedef struct TrsSnapshotImpl *TrsSnapshot;

typedef struct {
  int64_t copied_bytes; /* of tensors that were copied when the snapshot was taken */
  int64_t saved_rows, saved_bytes;
  int64_t most_bytes; /* the most bytes of the buffer that were in use at the same time */
  int64_t n_waits;    /* number of times that a thread has waited because the buffer was full */
  double wait_s;      /* time of these waits, summed over threads */
} TrsSnapshotCounts;

/*
  TrsSnapshotCreate - Prepare snapshots of the shards.

  Not collective. Must be called before lookups are created, because lookups copy the shards'
  tables. The host must be able to read and write the tables' memory.

  In:     shards        borrowed
          buffer_bytes  size of the buffer; at least one row of each shard fits
  Errors: MEMORY
*/
PetscErrorCode TrsSnapshotCreate(TrsEmbeddingShards *shards, int64_t buffer_bytes, TrsSnapshot *snapshot);
PetscErrorCode TrsSnapshotDestroy(TrsSnapshot *snapshot); /* accepts NULL */

/*
  TrsSnapshotTake - Make a state for a file of this step.

  Not collective. The snapshot must have no other state. The training may go on as soon as the file
  was created (TrsCheckpointBegin()), because only then the snapshot knows this rank's parts.

  In:     from   as TrsCheckpointPlace() left it. The memory of its tables' rows is borrowed until
                 TrsSnapshotRelease(), all other memory until the file was created
  Out:    state  as long as the snapshot is not released; the snapshot owns it
  Errors: MEMORY
*/
PetscErrorCode TrsSnapshotTake(TrsSnapshot snapshot, const TrsState *from, const TrsState **state);

/*
  Let threads that wait for the buffer go on, because the file will not be written. Rows are saved
  no longer, so the writer must end. Accepts NULL. Any thread may call this function.
*/
void TrsSnapshotAbandon(TrsSnapshot snapshot);

/* Free the state. The writer must have ended. Not collective. Out: counts; may be NULL */
PetscErrorCode TrsSnapshotRelease(TrsSnapshot snapshot, TrsSnapshotCounts *counts);
