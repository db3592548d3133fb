/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A checkpoint holds logical tensors in one HDF5 file. All ranks write at once, and one rename
  publishes the file (format: input/FORMAT.md).

  How a file is written, and why so: rank 0 alone lays out a file with early-allocated datasets
  (serial HDF5 in memory, latest format, checksummed metadata). It copies the file to a temporary
  one on disk and reserves the space (fallocate), so a full disk is found before anything is
  written. Every rank then writes its rectangles with pwrite at the datasets' file offsets. So there
  is no collective HDF5 call in which one failing rank could leave the others waiting.

  Datasets are contiguous. Only tensors that are cut by columns are chunked, so that each rank's
  columns are contiguous in the file. Then the ranks agree on success, and rank 0 adds the checksum
  of each part, flushes the file, renames it and flushes the folder. A published checkpoint is never
  opened for writing.
*/
#pragma once

#include "io/output.h"
#include "io/run_folder.h"
#include "io/state.h"

/*
  Numbers that are kept as a root attribute float64 [n]. n is 0 if there are none. For writing the
  numbers are borrowed; after reading free them with TrsCheckpointInfoFree().
*/
typedef struct {
  int n;
  double *value;
} TrsCheckpointNumbers;

typedef struct {
  int64_t step;                          /* number of updates done */
  int64_t states_from[TRS_STATES_KINDS]; /* updates that were done before those states began */
  int64_t epoch, samples_seen;
  int64_t run_step;             /* steps consumed of the training data, where a resume goes on */
  int64_t global_batch;         /* samples of a full step over all ranks, 0 if not known */
  int64_t epoch_steps;          /* steps of an epoch of the training data, 0 if not known */
  int64_t evaluation_due;       /* 1: the evaluation that follows this step was not made yet */
  int64_t data_samples;         /* samples of the training data, 0 if not known */
  int64_t data_hash;            /* TrsDatasetInfo's sample_hash of that data, 0 if not known */
  char run_id[TRS_RUN_ID_SIZE]; /* id of the run that wrote the file, "" if not known */
  const char *options;          /* text of the configuration */
  const char *plan;             /* the plan as JSON text */
  const char *model;            /* text of the options that define the model, or NULL */
  TrsCheckpointNumbers metrics, early_stopping; /* those of a training, in its own layout */
  const char *metrics_of;                       /* names of the metrics' tasks, or NULL */
  /* TrsCheckpointReadWanted() lists on rank 0 what the file has and the state lacks: tables
     ("embedding/user") and tensors of dense layers. States of optimizers are not counted. */
  int n_unexpected;
  char **unexpected; /* [n_unexpected] their names */
  /* With wanted->same, on rank 0: a state in the file that the weights here do not have. */
  char *other_state;
  /* Read: the file's options and names of the metrics' tasks, or NULL if it has none. */
  char *options_read, *metrics_of_read;
  /* Written: the file's place, used on rank 0. If it is NULL, an existing file is replaced. */
  TrsOutput *output;
} TrsCheckpointInfo;

/*
  How much of a state a file must have, and which part of the file is taken. If all fields are zero,
  the file must have every tensor except optimizers' states, in the shape it has here.

  Source: torch.nn.Module load_state_dict(strict=False), which names missing and unexpected keys.
          Unlike PyTorch, we treat a dense tensor of another shape as missing
*/
typedef struct {
  /* The file may lack tables and dense tensors, and dense tensors may have another shape. Such
     tensors and their states are left alone. */
  PetscBool initial;
  /* Tables may have fewer rows in the file. These are the first rows here;
     the rows behind them are left alone. */
  PetscBool grow;
  /* The file should be of this very model, so look for info->other_state, too. */
  PetscBool same;
  int n_tables;             /* 0 for everything */
  const char *const *table; /* [n_tables] only these tables with their states */
} TrsCheckpointWanted;

/*
  TrsCheckpointWrite - Write state to path and replace the previous file in one atomic rename.

  Collective on comm, in rounds: a rank that waits for other ranks' writes gives signs of life
  (TrsStageProgress) as they get on. After an error the previous file is intact and the temporary
  one is removed.

  Errors (agreed, all ranks): NOT_FINITE for an infinity or a NaN among the numbers; CANT_CREATE;
    IO, with the bytes needed and free if the disk is too small
*/
PetscErrorCode TrsCheckpointWrite(MPI_Comm comm, const char *path, const TrsState *state,
                                  const TrsCheckpointInfo *info);

/*
  TrsCheckpointRead - Read this rank's parts of every tensor of state, from a checkpoint of any
    plan.

  Collective on comm. If the file has checksums of parts, they are verified first, each by one rank.
  If there is a state->convert, it converts numbers of another type. States of another optimizer are
  not taken.

  Out:    info  step, epoch, samples_seen, run_step (the step if the file has none), global_batch,
                epoch_steps and evaluation_due (0 if the file has none), metrics and early_stopping
                if the file has them; texts are NULL. Free with TrsCheckpointInfoFree()
          state's tensors  was_read and the fields below it
  Errors (agreed): NO_INPUT; DATA with file and dataset, for another format or version, a missing
    tensor, a wrong shape or type, or a wrong checksum
*/
PetscErrorCode TrsCheckpointRead(MPI_Comm comm, const char *path, const TrsState *state,
                                 TrsCheckpointInfo *info);

/*
  Read a file that may have less or more than the state, as far as `wanted` says. Otherwise like
  TrsCheckpointRead(). Out: also info->unexpected.
*/
PetscErrorCode TrsCheckpointReadWanted(MPI_Comm comm, const char *path, const TrsState *state,
                                       const TrsCheckpointWanted *wanted, TrsCheckpointInfo *info);
PetscErrorCode TrsCheckpointInfoFree(TrsCheckpointInfo *info);

/*
  How a checkpoint holds the weights of a table: as numbers, or as the rows of a quantised table.
*/
typedef struct {
  PetscBool is_quantised;
  TrsDType dtype;     /* fp32, fp16, bf16; for the values of quantised rows int8, int4, int2 */
  int64_t rows, cols; /* of the dataset: cols counts columns, or bytes of a row */
  int64_t embedding_dim, row_alignment; /* attributes of quantised rows */
} TrsStoredTable;

/*
  TrsCheckpointTables - Find out what a checkpoint holds of these tables.

  Collective on comm. Only metadata is read. TrsCheckpointRead() verifies the checksums.

  In:     names   [n] of the tables
  Out:    stored  [n]
  Errors (agreed): NO_INPUT; DATA for another format, or a table that is missing, stored twice, of
    another type, or without its attributes
*/
PetscErrorCode TrsCheckpointTables(MPI_Comm comm, const char *path, int n, const char *const *names,
                                   TrsStoredTable *stored);

/* Is a tensor the weights of a table, or a state of theirs: of any table, or of this one? */
PetscBool TrsStateIsOfTable(const TrsStateTensor *tensor);
PetscBool TrsStateIsOf(const TrsStateTensor *tensor, const char *table);

/*
  TrsCheckpointModel - Read the options that define a checkpoint's model (TrsOptionsModelText()).

  Collective on comm. The checksum of the text is verified.

  Out:    text  the same on all ranks; NULL if the file has none, as those of earlier versions. Free
                with PetscFree()
  Errors (agreed): NO_INPUT; DATA for another format, or damage
*/
PetscErrorCode TrsCheckpointModel(MPI_Comm comm, const char *path, char **text);

/*
  Check that a checkpoint could be made at this file, before hours of training: that rank 0 can make
  it and all ranks can open it. NULL skips the check. Collective on comm. Errors (agreed):
  CANT_CREATE, with the rank and its host.
*/
PetscErrorCode TrsCheckpointTry(MPI_Comm comm, const char *file);

/*
  TrsCheckpointFolderOpen - Make a folder of checkpoints and take its lock until it is closed.

  The folder holds files step-<9 digits>.h5. Only the one run that has the lock (TrsRunFolderLock())
  writes there. The function also finds out which runs wrote the files that are there.

  Collective on comm.

  In:     keep  how many files of the run stay
          wait  how long to wait for another job to leave
  Errors (agreed): CANT_CREATE, STOPPED, NO_INPUT
*/
typedef struct TrsCheckpointFolderImpl *TrsCheckpointFolder;
PetscErrorCode TrsCheckpointFolderOpen(MPI_Comm comm, const char *path, int keep, const TrsRunWait *wait,
                                       TrsCheckpointFolder *folder);
PetscErrorCode TrsCheckpointFolderClose(TrsCheckpointFolder *folder); /* accepts NULL */

/*
  TrsCheckpointFolderClaim - Check that this run may write into the folder.

  Collective. With `resume` the files must be of one run. Without it there must be no files, because
  a new run does not mix its files with another run's. If `aside` is not NULL, existing files are
  moved into a new folder of that name within this folder.

  Errors (agreed): CANT_CREATE, with the run and the ways out
*/
PetscErrorCode TrsCheckpointFolderClaim(TrsCheckpointFolder folder, PetscBool resume, const char *aside);

/*
  The id of the run that a resume goes on with: the run of the files that are there or, if there are
  none, of a job that was killed before its first one. "" if there is none or an older program wrote
  the files. Accepts NULL. The string is borrowed. Not collective.
*/
const char *TrsCheckpointFolderRun(TrsCheckpointFolder folder);

/* Write down whose folder it is, in case that this job is killed. Accepts NULL. Not collective. */
void TrsCheckpointFolderName(TrsCheckpointFolder folder, const char *run_id);

/*
  TrsCheckpointFolderWrite - Publish the file of info->step, then remove surplus files of this run.

  Collective. Only the run's own files (info->run_id) up to that step are counted and removed.
  Neither the file just written nor a file of another run is ever removed, and a file that a reader
  holds (TrsCheckpointFolderFindNewest()) only by a later call. A folder that was removed during the
  run is made and locked anew.

  Errors: those of TrsCheckpointWrite(); CANT_CREATE if the folder is another run's by now
*/
PetscErrorCode TrsCheckpointFolderWrite(TrsCheckpointFolder folder, const TrsState *state,
                                        const TrsCheckpointInfo *info);

/*
  Tell whether a file that was found, but then could not be read, has been removed meanwhile. If so,
  there is a newer one. Rank 0 looks. Collective.
*/
PetscErrorCode TrsCheckpointIsGone(MPI_Comm comm, const char *path, PetscBool *gone);

/*
  TrsCheckpointFolderFindNewest - Find the newest valid file of a folder.

  A valid file opens, has the right format, and its checksums are right. Collective on comm. No lock
  is needed: if a run removes the file meanwhile, the search begins again. Rank 0 names invalid
  files in a warning. Left-over temporary files are ignored.

  Out:    hold  NULL, or a descriptor on rank 0 by which the file stays where a run goes on, if the
                file system has fcntl's locks; end it by TrsCheckpointRelease()
          path  free with PetscFree(); NULL if there is no file at all
  Errors (agreed): DATA if there are files and none is valid, because a run must not start anew
    beside them; CANT_CREATE for files of several runs; NO_INPUT
*/
PetscErrorCode TrsCheckpointFolderFindNewest(MPI_Comm comm, const char *folder, int *hold, char **path);

/*
  Hold a file: a run that goes on leaves it there, if the file system has fcntl's locks. Returns a
  descriptor for TrsCheckpointRelease(), -1 if the file cannot be opened. Not collective.
*/
int TrsCheckpointHold(const char *path);

/* Let a run remove the file. Accepts -1, for no hold. Not collective. */
void TrsCheckpointRelease(int *hold);
