/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/increments.h"

#include "run/deltas.h"

#include <inttypes.h>
#include <string.h>

static const TrsOptionSpec specs[] = {
    {"-checkpoint_full_every", TRS_OPTION_INT, "1", "[1,]", NULL, "checkpoints",
     "one of this many checkpoints in -checkpoint_dir is full. The others have only those rows and optimizer "
     "states of tables that have changed since the checkpoint before. They need all files back to the "
     "full one; -checkpoint_keep keeps these files. tools/merge_checkpoint.py makes a full checkpoint"},
};
const TrsOptionGroup trs_increment_options = TRS_OPTION_GROUP("Incremental checkpoints", specs);

PetscErrorCode TrsIncrementsFromOptions(TrsOptions options, TrsIncrements *increments)
{
  const char *dir = NULL;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-checkpoint_full_every", &increments->full_every, NULL));
  PetscCall(TrsOptionsGetString(options, "-checkpoint_dir", &dir, NULL));
  if (increments->full_every > 1 && !dir)
    PetscCall(
        TrsOptionError(options, "-checkpoint_full_every", "needs -checkpoint_dir, the folder to write to"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIncrementsCheck(const TrsIncrements *increments, const TrsSession *s)
{
  PetscFunctionBegin;
  if (increments->full_every > 1) PetscCall(TrsCheckNotesChanges(s, "-checkpoint_full_every"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if the tables have exactly the rows and states of the file that was read, with the same
  numbers of rows and the same types. Increments of this training then fit the file.
*/
static PetscBool fits_file(const TrsState *state)
{
  for (int i = 0; i < state->n; i++) {
    const TrsStateTensor *tensor = &state->tensor[i];

    if (tensor->rows_of && (!tensor->was_read || tensor->converted || tensor->averaged ||
                            (!tensor->count && tensor->rows_read < tensor->rows)))
      return PETSC_FALSE;
  }
  return PETSC_TRUE;
}

PetscErrorCode TrsIncrementsStart(TrsIncrements *increments, TrsSession *s, const TrsStartPoint *from,
                                  const TrsCheckpointInfo *start)
{
  TrsChanges changes = TrsModelParallelChanges(s->model);
  TrsDeltaPlace *place = &increments->place;
  int fits;

  PetscFunctionBegin;
  if (increments->full_every == 1) PetscFunctionReturn(PETSC_SUCCESS);
  TrsChangesForget(changes, TRS_CHANGES_OF_INCREMENTS);
  PetscCall(TrsChangesAddIncrement(changes, &s->state, &increments->state));
  if (!from->resumed) PetscFunctionReturn(PETSC_SUCCESS);
  fits = fits_file(&s->state) && !TrsChangesMoved(changes);
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &fits, 1, MPI_INT, MPI_MIN, s->comm));
  PetscCall(TrsCheckpointId(s->comm, from->path, place->id));
  /* The id of a file without checksums is all zeros, so readers cannot tell it from other files. */
  if (place->id[strspn(place->id, "0")] == 0) fits = 0;
  if (!fits) {
    PetscCall(PetscPrintf(
        s->comm, "%-10s the next checkpoint is full: rows or states of tables have another form than in %s\n",
        "increments", from->path));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  place->number = start->chain.number;
  place->step = start->step;
  place->base_step = place->number ? start->chain.base_step : start->step;
  PetscCall(PetscStrncpy(place->base, place->number ? start->chain.base : place->id, sizeof(place->base)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIncrementsChoose(TrsIncrements *increments, TrsSession *s, TrsCheckpointFolder folder,
                                   TrsCheckpointInfo *info)
{
  const TrsDeltaPlace *place = &increments->place;
  PetscBool has_chain = PETSC_FALSE;

  PetscFunctionBegin;
  if (increments->full_every == 1) PetscFunctionReturn(PETSC_SUCCESS);
  if (place->base[0] && place->number + 1 < increments->full_every && place->step < info->step) {
    PetscCall(TrsCheckpointFolderHasChain(folder, place->step, &has_chain));
    if (!has_chain)
      PetscCall(PetscPrintf(s->comm,
                            "the checkpoint after step %" PRId64
                            " is full, because files that an increment would need are missing\n",
                            info->step));
  }
  info->id = increments->id;
  info->is_increment = has_chain;
  info->chain = *place;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIncrementsWrite(TrsIncrements *increments, TrsSession *s, TrsCheckpointFolder folder,
                                  const TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(TrsCheckpointFolderWrite(folder, info->is_increment ? &increments->state : &s->state, info));
  TrsIncrementsTaken(increments, s);
  PetscCall(TrsIncrementsWritten(increments, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsIncrementsTaken(TrsIncrements *increments, TrsSession *s)
{
  if (increments->full_every > 1)
    TrsChangesWritten(TrsModelParallelChanges(s->model), TRS_CHANGES_OF_INCREMENTS);
}

PetscErrorCode TrsIncrementsWritten(TrsIncrements *increments, const TrsCheckpointInfo *info)
{
  TrsDeltaPlace *place = &increments->place;

  PetscFunctionBegin;
  if (!info) place->base[0] = '\0';
  if (!info || increments->full_every == 1) PetscFunctionReturn(PETSC_SUCCESS);
  if (!info->is_increment) {
    *place = (TrsDeltaPlace){.base_step = info->step};
    PetscCall(PetscStrncpy(place->base, info->id, sizeof(place->base)));
  } else {
    place->number++;
  }
  place->step = info->step;
  PetscCall(PetscStrncpy(place->id, info->id, sizeof(place->id)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsIncrementsFree(TrsIncrements *increments)
{
  PetscFunctionBegin;
  PetscCall(TrsStateFree(&increments->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}
