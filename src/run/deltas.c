/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/deltas.h"

#include "core/names.h"
#include "core/print.h"
#include "session/signals.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static const TrsOptionSpec specs[] = {
    {"-delta_every", TRS_OPTION_INT, "0", "[0,]", NULL, "steps",
     "write a delta to -delta_dir this often; 0: never. A delta has the rows of tables that updates have "
     "changed since the last delta, and all dense layers"},
    {"-delta_dir", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "folder for deltas, step-<step>.h5; it must not be the folder of -checkpoint_dir. All deltas stay, "
     "except those of steps that a resumed training repeats. tools/apply_delta.py makes a checkpoint from "
     "a base and its deltas"},
    {"-delta_data_type", TRS_OPTION_ENUM, "table", NULL, "table,fp32,fp16,bf16", NULL,
     "type of the rows in deltas. table: the type of their table, so that rows have the same bits as in a "
     "checkpoint"},
};
const TrsOptionGroup trs_delta_options = TRS_OPTION_GROUP("Deltas", specs);

/* The types, in the order of the words of -delta_data_type. */
static const TrsDType types[] = {TRS_N_DTYPES, TRS_FP32, TRS_FP16, TRS_BF16};

PetscErrorCode TrsDeltasFromOptions(TrsOptions options, TrsDeltas *d)
{
  int type;

  PetscFunctionBegin;
  *d = (TrsDeltas){.every = 0};
  PetscCall(TrsOptionsGetInt(options, "-delta_every", &d->every, NULL));
  PetscCall(TrsOptionsGetString(options, "-delta_dir", &d->dir, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-delta_data_type", &type, NULL));
  d->dtype = types[type];
  if (d->every && !d->dir)
    PetscCall(TrsOptionError(options, "-delta_every", "needs -delta_dir, the folder to write to"));
  if (!d->every && d->dir)
    PetscCall(TrsOptionError(options, "-delta_dir", "needs -delta_every, the steps between two deltas"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeltasOpenFolder(TrsDeltas *d, MPI_Comm comm, TrsOptions options,
                                   const char *checkpoint_dir)
{
  TrsRunWait wait = {.stop = &trs_stop_requested};
  struct stat ours, other;
  PetscBool resume;
  int same = 0, rank;

  PetscFunctionBegin;
  if (!d->every) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(TrsOptionsGetBool(options, "-resume", &resume, NULL));
  PetscCall(TrsOptionsGetReal(options, "-checkpoint_lock_seconds", &wait.seconds, NULL));
  if (!resume) wait.seconds = 0;
  if (rank == 0 && checkpoint_dir)
    same = strcmp(checkpoint_dir, d->dir) == 0 ||
           (stat(checkpoint_dir, &other) == 0 && stat(d->dir, &ours) == 0 && ours.st_dev == other.st_dev &&
            ours.st_ino == other.st_ino);
  PetscCallMPI(MPI_Bcast(&same, 1, MPI_INT, 0, comm));
  if (same)
    PetscCall(TrsOptionError(options, "-delta_dir",
                             "is the folder of -checkpoint_dir, whose files have the same names: give deltas "
                             "another folder"));
  PetscCall(TrsCheckpointFolderOpen(comm, d->dir, &trs_folder_deltas, INT_MAX, &wait, &d->folder));
  PetscCall(TrsCheckpointFolderClaim(d->folder, resume, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckNotesChanges(const TrsSession *s, const char *option)
{
  PetscFunctionBegin;
  if (!s->machine.device->host_memory)
    PetscCall(TrsOptionError(s->options, option,
                             "is for -device cpu so far: a GPU does not note which rows its updates change"));
  if (s->machine.owners)
    PetscCall(TrsOptionError(s->options, option, "does not go with -plan_replicas so far: leave one out"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeltasCheck(const TrsDeltas *d, const TrsSession *s)
{
  PetscFunctionBegin;
  if (d->every) PetscCall(TrsCheckNotesChanges(s, "-delta_every"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse a folder that has the deltas of another run. */
static PetscErrorCode check_run(const TrsDeltas *d, const char *run_id)
{
  const char *found = TrsCheckpointFolderRun(d->folder);

  PetscFunctionBegin;
  PetscCheck(TrsCheckpointFolderIsEmpty(d->folder) || strcmp(found, run_id) == 0, PETSC_COMM_SELF,
             TRS_ERR_CANT_CREATE, "%s belongs to run %s, and this is run %s: take another -delta_dir", d->dir,
             found, run_id);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if the training starts with exactly the weights of a file. This means that no tensor kept
  initial values, has additional rows or has another type than in the file, and that each row has
  the same number as in the file. The model may lack tensors of the file.
*/
static PetscBool starts_as_file(const TrsSession *s, const TrsStartPoint *from, PetscBool moved)
{
  PetscBool same = (PetscBool)(from->path && !moved);

  for (int i = 0; same && i < s->state.n; i++) {
    const TrsStateTensor *tensor = &s->state.tensor[i];

    if (!tensor->optional &&
        (!tensor->was_read || tensor->converted || (!tensor->count && tensor->rows_read < tensor->rows)))
      same = PETSC_FALSE;
  }
  return same;
}

/*
  Begin a chain with the weights that the training starts with. If no file has exactly these
  weights, or if it has no checksums, the base is the start of the run, and readers need a
  checkpoint that the run writes.
*/
static PetscErrorCode begin_chain(TrsDeltas *d, const TrsSession *s, const TrsStartPoint *from,
                                  const TrsCheckpointInfo *start, const char *run_id, PetscBool moved)
{
  PetscFunctionBegin;
  d->place = (TrsDeltaPlace){.base_step = start->step, .step = start->step};
  if (starts_as_file(s, from, moved)) PetscCall(TrsCheckpointId(s->comm, from->path, d->place.base));
  /* A file without checksums has an id of zeros, by which readers cannot tell it from others. */
  if (d->place.base[strspn(d->place.base, "0")] == 0)
    PetscCall(PetscStrncpy(d->place.base, run_id, sizeof(d->place.base)));
  PetscCall(PetscStrncpy(d->place.id, d->place.base, sizeof(d->place.id)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeltasStart(TrsDeltas *d, TrsSession *s, const TrsStartPoint *from,
                              const TrsCheckpointInfo *start, const char *run_id)
{
  const PetscBool goes_on = (PetscBool)(from->resumed && start->place.base[0]);
  PetscBool other;
  int others;

  PetscFunctionBegin;
  if (!d->every) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(check_run(d, run_id));
  TrsCheckpointFolderName(d->folder, run_id);
  PetscCall(
      TrsAgree(s->comm, TrsChangesStart(TrsModelParallelChanges(s->model), goes_on, from->path, &other)));
  others = other ? 1 : 0;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &others, 1, MPI_INT, MPI_MAX, s->comm));
  if (others) PetscCall(TrsChangesStart(TrsModelParallelChanges(s->model), PETSC_FALSE, from->path, &other));
  if (goes_on && !others)
    d->place = start->place;
  else
    PetscCall(begin_chain(d, s, from, start, run_id, (PetscBool)others));
  PetscCall(TrsModelParallelAddDelta(s->model, d->dtype, &d->state));
  PetscCall(TrsCheckpointTryNames(d->dir, &d->state));
  if (goes_on && !others)
    PetscCall(PetscPrintf(s->comm, "%-10s go on after delta %" PRId64 " of step %" PRId64 "\n", "deltas",
                          d->place.number, d->place.step));
  else
    PetscCall(PetscPrintf(s->comm, "%-10s a chain from step %" PRId64 ", base %s\n", "deltas",
                          d->place.base_step, d->place.base));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Remove the deltas of steps that a resumed training repeats, and write the new delta. */
static PetscErrorCode write_file(TrsDeltas *d, const TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(TrsCheckpointFolderCut(d->folder, info->run_id, d->place.step));
  PetscCall(TrsCheckpointFolderWrite(d->folder, &d->state, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print that the delta could not be written, unless the error must end the training. */
static PetscErrorCode go_on(TrsDeltas *d, const TrsSession *s, const TrsCheckpointInfo *info,
                            PetscErrorCode ierr)
{
  PetscFunctionBegin;
  if (ierr != TRS_ERR_IO && ierr != TRS_ERR_CANT_CREATE) PetscCall(ierr);
  d->n_failed++;
  if (s->rank == 0)
    TrsPrint(stderr,
             "trshard: warning: the delta after step %" PRId64
             " was not written: %s; the training goes on, and the next delta has these rows, too\n",
             info->step, TrsErrorMessage());
  TrsErrorClear();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeltasWrite(TrsDeltas *d, TrsSession *s, TrsCheckpointInfo *info)
{
  char id[TRS_FILE_ID_SIZE], *path;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  info->is_delta = PETSC_TRUE;
  info->place = d->place;
  info->id = id;
  PetscCall(TrsAgree(s->comm, TrsModelParallelListChanges(s->model, 1u << TRS_CHANGES_OF_DELTAS)));
  ierr = write_file(d, info);
  if (ierr) {
    PetscCall(go_on(d, s, info, ierr));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  TrsChangesWritten(TrsModelParallelChanges(s->model), TRS_CHANGES_OF_DELTAS);
  d->place.number++;
  d->place.step = info->step;
  PetscCall(PetscStrncpy(d->place.id, id, sizeof(d->place.id)));
  d->n_failed = 0;
  PetscCall(TrsCheckpointFolderPath(d->folder, info->step, &path));
  PetscCall(PetscPrintf(s->comm, "delta %" PRId64 " after step %" PRId64 ": %s\n", d->place.number,
                        info->step, path));
  PetscCall(PetscFree(path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDeltasClose(TrsDeltas *d)
{
  PetscFunctionBegin;
  PetscCall(TrsCheckpointFolderClose(&d->folder));
  PetscCall(TrsStateFree(&d->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}
