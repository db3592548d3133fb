/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/ranks.h"
#include "io/checkpoint/read_impl.h"
#include "io/preflight.h"

#include <inttypes.h>
#include <string.h>

PetscErrorCode TrsCheckpointRunId(const TrsHDF5File *file, char id[TRS_RUN_ID_SIZE])
{
  PetscBool found;
  char *text;

  PetscFunctionBegin;
  PetscCall(TrsHDF5ReadString(file, file->id, "", TRS_CHECKPOINT_RUN_ID, &found, &text));
  TRS_CHECK_DATA(!found || TrsRunIdIsValid(text),
                 "%s: attribute " TRS_CHECKPOINT_RUN_ID " is \"%.40s\", expected 16 hexadecimal digits",
                 file->path, text);
  PetscCall(PetscStrncpy(id, found ? text : "", TRS_RUN_ID_SIZE));
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_info(const TrsHDF5File *file, TrsCheckpointInfo *info)
{
  int64_t most_steps;
  PetscBool found;

  PetscFunctionBegin;
  memset(info, 0, sizeof(*info));
  /* A file of weights from elsewhere may lack these attributes. */
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "step", 1, &found, &info->step));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "states_from", TRS_STATES_KINDS, &found, info->states_from));
  for (int kind = 0; kind < TRS_STATES_KINDS; kind++)
    PetscCheck(info->states_from[kind] >= 0 && info->states_from[kind] <= PetscMax(info->step, 0),
               PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: attribute states_from has %" PRId64 ", expected 0 to step, %" PRId64, file->path,
               info->states_from[kind], info->step);
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "epoch", 1, &found, &info->epoch));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "samples_seen", 1, &found, &info->samples_seen));
  info->run_step = info->step;
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "run_step", 1, &found, &info->run_step));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "global_batch", 1, &found, &info->global_batch));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "epoch_steps", 1, &found, &info->epoch_steps));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "evaluation_due", 1, &found, &info->evaluation_due));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "data_samples", 1, &found, &info->data_samples));
  PetscCall(TrsHDF5ReadInts(file, file->id, "", "data_hash", 1, &found, &info->data_hash));
  PetscCall(TrsCheckpointRunId(file, info->run_id));
  PetscCall(TrsHDF5ReadString(file, file->id, "", "options", &found, &info->options_read));
  PetscCall(TrsHDF5ReadReals(file, file->id, "", TRS_CHECKPOINT_METRICS, &found, &info->metrics.n,
                             &info->metrics.value));
  PetscCall(TrsHDF5ReadString(file, file->id, "", "metrics_of", &found, &info->metrics_of_read));
  PetscCall(TrsHDF5ReadReals(file, file->id, "", TRS_CHECKPOINT_EARLY_STOPPING, &found,
                             &info->early_stopping.n, &info->early_stopping.value));
  TRS_CHECK_DATA(info->step >= 0 && info->epoch >= 0 && info->samples_seen >= 0 && info->run_step >= 0,
                 "%s: step %" PRId64 ", epoch %" PRId64 ", samples_seen %" PRId64 ", run_step %" PRId64
                 ", expected at least 0",
                 file->path, info->step, info->epoch, info->samples_seen, info->run_step);
  most_steps = INT64_MAX / 4 / PetscMax(info->global_batch, 1);
  TRS_CHECK_DATA(info->global_batch >= 0 && info->epoch_steps >= 0 && info->data_samples >= 0 &&
                     info->run_step <= most_steps && info->epoch_steps <= most_steps,
                 "%s: run_step %" PRId64 ", epoch_steps %" PRId64 ", global_batch %" PRId64
                 ", data_samples %" PRId64 ": expected at least 0, and steps times samples below 2^61",
                 file->path, info->run_step, info->epoch_steps, info->global_batch, info->data_samples);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointOpen(const char *path, TrsHDF5File *file)
{
  PetscFunctionBegin;
  PetscCall(TrsHDF5FileOpen(path, file));
  PetscCall(TrsHDF5CheckFormat(file, TRS_CHECKPOINT_FORMAT, TRS_CHECKPOINT_VERSION));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A request to read a file. If state is NULL, only the checksums are verified. */
typedef struct {
  const char *path;
  const TrsCheckpointWanted *wanted;
  const TrsState *state;
  TrsCheckpointInfo *info;
} TrsRequestOfFile;

static PetscErrorCode read_tensors(const TrsHDF5File *file, const TrsRequestOfFile *q, int rank)
{
  PetscFunctionBegin;
  PetscCall(read_info(file, q->info));
  for (int i = 0; i < q->state->n; i++)
    PetscCall(TrsCheckpointReadTensor(file, q->wanted, q->state, &q->state->tensor[i]));
  if (rank == 0 && q->wanted) PetscCall(TrsCheckpointFindUnexpected(file, q->wanted, q->state, q->info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Try on rank 0, in a child process, everything except reading the data. */
static PetscErrorCode try_file(void *context)
{
  const TrsRequestOfFile *q = context;
  TrsCheckpointInfo info;
  TrsHDF5File file;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointOpen(q->path, &file));
  PetscCall(read_info(&file, &info));
  /* Rank -1 reads only the tables of checksums. */
  PetscCall(TrsCheckpointVerifyParts(&file, -1, 1));
  for (int i = 0; q->state && i < q->state->n; i++)
    PetscCall(TrsCheckpointTryTensor(&file, &q->state->tensor[i]));
  if (q->wanted) PetscCall(TrsCheckpointFindUnexpected(&file, q->wanted, q->state, &info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_first(TrsRequestOfFile *q, TrsHDF5File *file)
{
  PetscFunctionBegin;
  PetscCall(TrsPreflight(q->path, try_file, q));
  PetscCall(TrsCheckpointOpen(q->path, file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Open the file on rank 0 first, so that a bad file is met once. Then verify it, then read it. */
static PetscErrorCode read_agreed(MPI_Comm comm, TrsRequestOfFile *q, TrsHDF5File *file)
{
  int rank, size;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, &size));
  PetscCall(TrsAgree(comm, rank == 0 ? open_first(q, file) : PETSC_SUCCESS));
  PetscCall(TrsAgree(comm, rank == 0 ? PETSC_SUCCESS : TrsCheckpointOpen(q->path, file)));
  /* Rank -1 reads only the tables of checksums. */
  PetscCall(
      TrsAgree(comm, TrsCheckpointVerifyParts(file, q->state && q->state->unverified ? -1 : rank, size)));
  if (q->state) PetscCall(TrsAgree(comm, read_tensors(file, q, rank)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_file(MPI_Comm comm, TrsRequestOfFile *q)
{
  TrsHDF5File file = {.path = NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  TrsHDF5Lock(); /* The lock is held for long: no reader runs while a checkpoint is loaded. */
  ierr = read_agreed(comm, q, &file);
  (void)TrsHDF5FileClose(&file);
  TrsHDF5Unlock();
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointRead(MPI_Comm comm, const char *path, const TrsState *state,
                                 TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(TrsCheckpointReadWanted(comm, path, state, NULL, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointReadWanted(MPI_Comm comm, const char *path, const TrsState *state,
                                       const TrsCheckpointWanted *wanted, TrsCheckpointInfo *info)
{
  TrsRequestOfFile q = {path, wanted, state, info};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (info) memset(info, 0, sizeof(*info));
  ierr = read_file(comm, &q);
  if (ierr && info) (void)TrsCheckpointInfoFree(info);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointInfoFree(TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(info->metrics.value));
  PetscCall(PetscFree(info->early_stopping.value));
  for (int i = 0; i < info->n_unexpected; i++) PetscCall(PetscFree(info->unexpected[i]));
  PetscCall(PetscFree(info->unexpected));
  PetscCall(PetscFree(info->other_state));
  PetscCall(PetscFree(info->options_read));
  PetscCall(PetscFree(info->metrics_of_read));
  info->metrics.n = info->early_stopping.n = info->n_unexpected = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointVerify(MPI_Comm comm, const char *path)
{
  TrsRequestOfFile q = {.path = path};

  PetscFunctionBegin;
  PetscCall(read_file(comm, &q));
  PetscFunctionReturn(PETSC_SUCCESS);
}
