/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The rows of a rank's shards that have changed since the last delta, or since the last checkpoint,
  and their tensors in deltas and checkpoints (input/FORMAT.md, "Delta", "Incremental checkpoints").

  A row has changed if an update used it, or if it was given to an id or taken from it. Updates and
  placements set a bit for it (compute/changed_rows.h). Before a file is written, these bits are
  added to the set of each use. All column shards of a row have the same
  bits, because they get the same ids. So do all ranks of a data_parallel table.

  The tensors are lists (io/state.h). With any plan, their rows are in ascending order. A unit of a
  list is a range of rows that no shard of the table cuts, or a bucket of a table that grows.

  For a table that keeps ids, the id that each row had at the last delta is also remembered. The
  table's deltas name the ids that have lost their rows since then.

  Memory: a bit for each row, and another one for each use. For deltas, a table that keeps ids needs
  a further bit and 8 bytes for each row. The host must be able to read the memory of the device.
*/
#pragma once

#include "embed/embedding_shards.h"

typedef struct TrsChangesImpl *TrsChanges;

/* Uses of the changed rows: deltas, and incremental checkpoints. */
typedef enum { TRS_CHANGES_OF_DELTAS, TRS_CHANGES_OF_INCREMENTS, TRS_CHANGES_N_USES } TrsChangesUse;

/*
  Begin to note which rows of the shards change. At first, no row counts as changed. `shards` is
  borrowed. `uses` has a bit 1 << use for each use. Must be called before lookups are created,
  because lookups copy the shards' tables. Not collective. Errors: MEMORY
*/
PetscErrorCode TrsChangesCreate(TrsEmbeddingShards *shards, unsigned uses, TrsChanges *changes);
PetscErrorCode TrsChangesDestroy(TrsChanges *changes); /* accepts NULL */

/* Are the changed rows noted for this use? Accepts NULL. Not collective. */
PetscBool TrsChangesAreFor(TrsChanges changes, TrsChangesUse use);

/*
  For each table, add the tensor embedding/<table>/delta/changed to the state of checkpoints. It
  lists the rows that have changed since the last delta. A resumed training goes on with these rows.
  Not collective.
*/
PetscErrorCode TrsChangesAddState(TrsChanges changes, TrsState *state);

/* True for the tensors that TrsChangesAddState() adds. */
PetscBool TrsChangesIsTensor(const TrsStateTensor *tensor);

/*
  Forget all changes for a use, because a checkpoint was read or the tables were filled. Not
  collective.
*/
void TrsChangesForget(TrsChanges changes, TrsChangesUse use);

/*
  True if rows of this rank have other numbers than in the checkpoint that was read, because a table
  that grows has other buckets here. Not collective.
*/
PetscBool TrsChangesMoved(TrsChanges changes);

/*
  TrsChangesStart - Forget the changes for deltas, as TrsChangesForget() does.

  Not collective.

  In:     resumed  true: go on with the changed rows of the checkpoint that was read
          path     the checkpoint, for messages
  Out:    other    true if rows have other numbers than in the checkpoint, because a table that
                   grows has other buckets here. The chain of deltas then cannot go on from the
                   checkpoint. May differ between ranks
  Errors: DATA if a changed row is outside its table; MEMORY
*/
PetscErrorCode TrsChangesStart(TrsChanges changes, PetscBool resumed, const char *path, PetscBool *other);

/*
  For all tables, add the tensors of a delta: the numbers of the changed rows, their ids, their
  weights, and the ids that have lost their rows. The weights have the type `dtype`, or for
  TRS_N_DTYPES the type of their table. Not collective.
*/
PetscErrorCode TrsChangesAddDelta(TrsChanges changes, TrsDType dtype, TrsState *state);

/*
  Add all tensors of an incremental checkpoint: those of the checkpoint `full`, but only the changed
  rows of the tables, with the numbers of these rows. The memory of the parts of `full` is borrowed.
  Not collective.
*/
PetscErrorCode TrsChangesAddIncrement(TrsChanges changes, const TrsState *full, TrsState *state);

/*
  List the changed rows of some uses, with a bit 1 << use for each. Must be called before each delta
  or checkpoint is written, when all rows are in their tables (TrsLookupSettle()). Not collective.
  Errors: MEMORY
*/
PetscErrorCode TrsChangesList(TrsChanges changes, unsigned uses);

/* Forget the listed rows of a use. Call it after their file was written. Not collective. */
void TrsChangesWritten(TrsChanges changes, TrsChangesUse use);
