/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A checkpoint holds logical tensors in one HDF5 file. All ranks write at the same time, and one
  rename publishes the file (format: input/FORMAT.md).

  Rank 0 lays out a file with early-allocated datasets (serial HDF5 in memory, latest format,
  checksummed metadata). It copies the file to a temporary one on disk and reserves the space
  (fallocate), so a full disk is found before any data is written. Every rank then writes its
  rectangles with pwrite at the datasets' file offsets. So there is no collective HDF5 call in which
  one failing rank could leave the others waiting.

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
  Numbers in a root attribute float64 [n]. n is 0 if there is no attribute. For writing, the numbers
  are borrowed. After reading, free them with TrsCheckpointInfoFree().
*/
typedef struct {
  int n;
  double *value;
} TrsCheckpointNumbers;

typedef struct {
  int64_t step;                          /* number of updates done */
  int64_t states_from[TRS_STATES_KINDS]; /* updates done before the states of each kind began */
  int64_t epoch, samples_seen;
  int64_t run_step;             /* steps of the training data done, where a resume continues */
  int64_t global_batch;         /* samples of a full step over all ranks, 0 if unknown */
  int64_t epoch_steps;          /* steps per epoch of the training data, 0 if unknown */
  int64_t evaluation_due;       /* 1: the evaluation after this step is still missing */
  int64_t data_samples;         /* samples of the training data, 0 if unknown */
  int64_t data_hash;            /* TrsDatasetInfo's sample_hash of that data, 0 if unknown */
  char run_id[TRS_RUN_ID_SIZE]; /* id of the run that wrote the file, "" if unknown */
  const char *options;          /* text of the configuration */
  const char *plan;             /* the plan as JSON text */
  const char *model;            /* text of the options that define the model, or NULL */
  /* Numbers of a training, in its own layout. For writing, only rank 0 needs metrics_window. */
  TrsCheckpointNumbers metrics, metrics_exact, metrics_window, early_stopping;
  const char *metrics_of; /* names of the metrics' tasks, or NULL */
  /*
    TrsCheckpointReadWanted() lists on rank 0 the tensors that the file has and the state lacks:
    tables ("embedding/user") and tensors of dense layers. Optimizer states are not counted.
  */
  int n_unexpected;
  char **unexpected; /* [n_unexpected] their names */
  /* With wanted->same, on rank 0: a state in the file that the model's weights do not have. */
  char *other_state;
  /* After reading: the file's options and names of the metrics' tasks, or NULL if it has none. */
  char *options_read, *metrics_of_read;
  /* For writing: the file's place, used on rank 0. If it is NULL, an existing file is replaced. */
  TrsOutput *output;
} TrsCheckpointInfo;

/*
  Selection of the tensors that a file must have, and of the tensors to read from it. If all fields
  are zero, the file must have every tensor except optimizer states, in the same shape as here.

  Source: torch.nn.Module load_state_dict(strict=False), which lists missing and unexpected keys.
          Unlike PyTorch, we treat a dense tensor of another shape as missing
*/
typedef struct {
  /*
    The file may lack tables and dense tensors, and dense tensors may have another shape. Such
    tensors and their states are left unchanged.
  */
  PetscBool initial;
  /*
    Tables may have fewer rows in the file. These become the first rows here; the rows after them
    are left unchanged.
  */
  PetscBool grow;
  /* The file should be of this same model, so also look for info->other_state. */
  PetscBool same;
  int n_tables;             /* 0 for everything */
  const char *const *table; /* [n_tables] only these tables with their states */
} TrsCheckpointWanted;

/*
  TrsCheckpointWrite - Write state to path and replace the previous file in one atomic rename.

  Collective on comm. The ranks write in rounds, and a rank that waits for the others reports
  progress after each round (TrsStageProgress). After an error the previous file is intact and the
  temporary file is removed.

  Errors (agreed, all ranks): NOT_FINITE for an infinity or a NaN among the numbers; CANT_CREATE;
    IO, with the bytes needed and free if the disk is too small
*/
PetscErrorCode TrsCheckpointWrite(MPI_Comm comm, const char *path, const TrsState *state,
                                  const TrsCheckpointInfo *info);

/*
  TrsCheckpointRead - Read this rank's parts of every tensor of state, from a checkpoint of any
    plan.

  Collective on comm. If the file has checksums of parts, they are verified first, each by one rank.
  If state->convert is set, it converts numbers of another type. States of another optimizer are not
  read.

  Out:    info  step, epoch, samples_seen, run_step (the step if the file has none), global_batch,
                epoch_steps and evaluation_due (0 if the file has none), metrics, metrics_exact,
                metrics_window and early_stopping if the file has them; texts are NULL. Free it with
                TrsCheckpointInfoFree()
          state's tensors  was_read and the fields below it
  Errors (agreed): NO_INPUT; DATA with file and dataset, for another format or version, a missing
    tensor, a wrong shape or type, or a wrong checksum
*/
PetscErrorCode TrsCheckpointRead(MPI_Comm comm, const char *path, const TrsState *state,
                                 TrsCheckpointInfo *info);

/*
  Read a file that may have fewer or more tensors than the state, as `wanted` allows. Otherwise like
  TrsCheckpointRead(). Out: also info->unexpected.
*/
PetscErrorCode TrsCheckpointReadWanted(MPI_Comm comm, const char *path, const TrsState *state,
                                       const TrsCheckpointWanted *wanted, TrsCheckpointInfo *info);
PetscErrorCode TrsCheckpointInfoFree(TrsCheckpointInfo *info);

/* Storage of a table's weights in a checkpoint: as numbers, or as the rows of a quantised table. */
typedef struct {
  PetscBool is_quantised;
  TrsDType dtype;     /* fp32, fp16, bf16; for the values of quantised rows int8, int4, int2 */
  int64_t rows, cols; /* of the dataset: cols counts columns, or bytes per row */
  int64_t embedding_dim, row_alignment; /* attributes of quantised rows */
} TrsStoredTable;

/*
  TrsCheckpointTables - Find the storage of these tables in a checkpoint.

  Collective on comm. Only metadata is read. TrsCheckpointRead() verifies the checksums.

  In:     names   [n] names of the tables
  Out:    stored  [n]
  Errors (agreed): NO_INPUT; DATA for another format, or a table that is missing, stored twice, of
    another type, or without its attributes
*/
PetscErrorCode TrsCheckpointTables(MPI_Comm comm, const char *path, int n, const char *const *names,
                                   TrsStoredTable *stored);

/* Does a tensor hold the weights of a table or their states: of any table, or of this one? */
PetscBool TrsStateIsOfTable(const TrsStateTensor *tensor);
PetscBool TrsStateIsOf(const TrsStateTensor *tensor, const char *table);

/*
  TrsCheckpointModel - Read the options that define a checkpoint's model (TrsOptionsModelText()).

  Collective on comm. The checksum of the text is verified.

  Out:    text  the same on all ranks; NULL if the file is of an earlier version and has no text.
                Free with PetscFree()
  Errors (agreed): NO_INPUT; DATA for another format, or damage
*/
PetscErrorCode TrsCheckpointModel(MPI_Comm comm, const char *path, char **text);

/*
  Before hours of training, check that a checkpoint could be made at this file: that rank 0 can
  create it and all ranks can open it. NULL skips the check. Collective on comm. Errors (agreed):
  CANT_CREATE, with the rank and its host.
*/
PetscErrorCode TrsCheckpointTry(MPI_Comm comm, const char *file);

/*
  Check that a checkpoint can hold the names of the state's tensors, before hours of training. The
  message names `path`, which is the file's or the folder's. NULL skips the check. Not collective,
  because all ranks have the same names. Errors: OPTION with the name.
*/
PetscErrorCode TrsCheckpointTryNames(const char *path, const TrsState *state);

/*
  TrsCheckpointFolderOpen - Make a folder of checkpoints and lock it until it is closed.

  The folder holds files step-<9 digits>.h5. Only the one run that has the lock (TrsRunFolderLock())
  writes there. The function also finds the runs that wrote the existing files.

  Collective on comm.

  In:     keep  number of the run's files to keep
          wait  how long to wait for another job to leave
  Errors (agreed): CANT_CREATE, STOPPED, NO_INPUT
*/
typedef struct TrsCheckpointFolderImpl *TrsCheckpointFolder;
PetscErrorCode TrsCheckpointFolderOpen(MPI_Comm comm, const char *path, int keep, const TrsRunWait *wait,
                                       TrsCheckpointFolder *folder);
PetscErrorCode TrsCheckpointFolderClose(TrsCheckpointFolder *folder); /* accepts NULL */

/*
  TrsCheckpointFolderClaim - Check that this run may write into the folder.

  Collective. With `resume` all files must be of one run. Without it there must be no files, because
  a new run must not mix its files with another run's. If `aside` is not NULL, existing files are
  first moved into a new folder of this name within the folder.

  Errors (agreed): CANT_CREATE, with the run and possible remedies
*/
PetscErrorCode TrsCheckpointFolderClaim(TrsCheckpointFolder folder, PetscBool resume, const char *aside);

/*
  Return the id of the run that a resume continues: the run of the existing files. If there are
  none, it is the run of a job that was killed before its first file. "" if there is no such run or
  an older program wrote the files. Accepts NULL. The string is borrowed. Not collective.
*/
const char *TrsCheckpointFolderRun(TrsCheckpointFolder folder);

/* Record the owner of the folder, in case this job is killed. Accepts NULL. Not collective. */
void TrsCheckpointFolderName(TrsCheckpointFolder folder, const char *run_id);

/*
  TrsCheckpointFolderWrite - Publish the file of info->step, then remove surplus files of this run.

  Collective. Only the run's own files (info->run_id) up to that step are counted and removed.
  Neither the file just written nor a file of another run is ever removed. A file that a reader
  holds (TrsCheckpointFolderFindNewest()) is removed by a later call. If the folder was removed
  during the run, it is made and locked again.

  Errors: those of TrsCheckpointWrite(); CANT_CREATE if the folder now belongs to another run
*/
PetscErrorCode TrsCheckpointFolderWrite(TrsCheckpointFolder folder, const TrsState *state,
                                        const TrsCheckpointInfo *info);

/*
  After a file could not be read, check whether it has been removed since it was found. If so, there
  is a newer one. Rank 0 checks. Collective.
*/
PetscErrorCode TrsCheckpointIsGone(MPI_Comm comm, const char *path, PetscBool *gone);

/*
  TrsCheckpointFolderFindNewest - Find the newest valid file of a folder.

  A valid file opens, has the right format, and its checksums are right. Collective on comm. No lock
  is needed: if a run removes the file meanwhile, the search begins again. Rank 0 prints a warning
  for each invalid file. Left-over temporary files are ignored.

  Out:    hold  NULL, or on rank 0 a descriptor that keeps a running training from removing the
                file, if the file system has fcntl's locks; end it by TrsCheckpointRelease()
          path  free with PetscFree(); NULL if there is no file at all
  Errors (agreed): DATA if there are files but none is valid, because a run must not start anew
    beside them; CANT_CREATE for files of several runs; NO_INPUT
*/
PetscErrorCode TrsCheckpointFolderFindNewest(MPI_Comm comm, const char *folder, int *hold, char **path);

/*
  Hold a file: a running training then does not remove it, if the file system has fcntl's locks.
  Returns a descriptor for TrsCheckpointRelease(), or -1 if the file cannot be opened. Not
  collective.
*/
int TrsCheckpointHold(const char *path);

/* Let a running training remove the file again. Accepts -1, for no hold. Not collective. */
void TrsCheckpointRelease(int *hold);
