/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Checkpoints: logical tensors in one HDF5 file, written by all ranks at once, published by one rename (format: input/FORMAT.md).

  How a file is written, and why so: rank 0 alone lays out a file with early-allocated datasets (serial HDF5 in memory, latest format, checksummed metadata),
  copies that to a temporary file and reserves the space (fallocate), so a full disk is found before anything is written; every rank
  then writes its rectangles with pwrite at the datasets' file offsets: no collective HDF5 call exists that one failing rank could leave the others in.
  Datasets are contiguous, but for tensors cut by columns, which are chunked so that each rank's columns are contiguous in the file.
  Ranks agree on success, rank 0 adds the checksum of each part, fsync, rename, fsync of the folder. A live checkpoint is never opened for writing.
*/
#pragma once

#include "io/output.h"
#include "io/run_folder.h"
#include "io/state.h"

/* Numbers kept as a root attribute float64 [n]; n 0: none. Written: borrowed. Read: free with TrsCheckpointInfoFree(). */
typedef struct {
  int n;
  double *value;
} TrsCheckpointNumbers;

typedef struct {
  int64_t step; /* updates done */
  int64_t epoch, samples_seen;
  int64_t run_step;             /* steps of the training data consumed: where a resumed reader goes on, */
  int64_t global_batch;         /* and the samples of a full one of them, over all ranks; 0: not known */
  int64_t data_samples;         /* of the training data; 0: not known */
  char run_id[TRS_RUN_ID_SIZE]; /* of the run that wrote the file; "": not known */
  const char *options;          /* text */
  const char *plan;             /* JSON text */
  TrsCheckpointNumbers metrics, early_stopping; /* a training's, as it lays them out */
  int n_unexpected; /* of ReadWanted, on rank 0: what the file has and the state has not, a name each: tables ("embedding/user"), tensors of dense layers. States */
  char **unexpected;  /* of optimizers are not counted */
  char *other_state;  /* with wanted->same, on rank 0: a state in the file that the weights have not here */
  char *options_read; /* of a file read: its options; NULL: it has none */
  TrsOutput *output;  /* written: the file's place, rank 0's counts; NULL: what stands there is replaced */
} TrsCheckpointInfo;

/*
  How much of a state a file must have, and which part of it is taken. All zero: every tensor but optimizers' states, as it is here. Source: torch.nn.Module
  load_state_dict(strict=False), which names missing and unexpected keys; unlike it, a dense layer of another shape is then as good as missing.
*/
typedef struct {
  PetscBool
      initial; /* what the file lacks is left alone: tables, dense tensors, and dense ones of another shape; each with its states */
  PetscBool
      grow; /* tables may have fewer rows in the file: they are the first; rows behind them are left alone */
  PetscBool same;           /* the file should be of this very model: look for info->other_state, too */
  int n_tables;             /* 0: everything */
  const char *const *table; /* [n_tables] only these tables, with their states */
} TrsCheckpointWanted;

/*
  TrsCheckpointWrite - Write state to path, replacing what was there in one atomic rename.

  Collective on comm, in rounds: a rank that waits for others' writes shows life (TrsStageProgress) as they get on.
  Errors (agreed, all ranks): NOT_FINITE (an infinity or a NaN among the numbers); CANT_CREATE, IO (with the bytes needed and free when the
  disk is too small); the previous file is intact and the temporary one removed.
*/
PetscErrorCode TrsCheckpointWrite(MPI_Comm comm, const char *path, const TrsState *state,
                                  const TrsCheckpointInfo *info);

/*
  TrsCheckpointRead - Read this rank's parts of every tensor of state, from any plan's checkpoint.

  Numbers of another type are converted by state->convert, where there is one; states of another optimizer are not taken.

  Collective on comm. Part checksums, where the file has them, are verified first, each by one rank.

  Out:    info  step, epoch, samples_seen, run_step (step where the file has none), global_batch (0 likewise), metrics and early_stopping where
                there are any; texts NULL. Free with TrsCheckpointInfoFree()
          was_read and what follows it of the state's tensors
  Errors (agreed): NO_INPUT; DATA naming file and dataset: other format or version, missing tensor, wrong shape or type, checksum mismatch
*/
PetscErrorCode TrsCheckpointRead(MPI_Comm comm, const char *path, const TrsState *state,
                                 TrsCheckpointInfo *info);

/* The same of a file that may have less, or more, than the state: what is wanted of it. Out: also info->unexpected */
PetscErrorCode TrsCheckpointReadWanted(MPI_Comm comm, const char *path, const TrsState *state,
                                       const TrsCheckpointWanted *wanted, TrsCheckpointInfo *info);
PetscErrorCode TrsCheckpointInfoFree(TrsCheckpointInfo *info);

/* How a checkpoint holds the weights of a table: numbers, or the rows of a quantised table. */
typedef struct {
  PetscBool is_quantised;
  TrsDType dtype;     /* fp32, fp16, bf16; of the values where quantised: int8, int4, int2 */
  int64_t rows, cols; /* of the dataset: columns, or bytes of a row */
  int64_t embedding_dim, row_alignment; /* quantised: its attributes */
} TrsStoredTable;

/*
  TrsCheckpointTables - What does a checkpoint hold of these tables?

  Collective on comm. Metadata alone are read; checksums are TrsCheckpointRead()'s.

  In:     names   [n] of the tables
  Out:    stored  [n]
  Errors (agreed): NO_INPUT; DATA: another format, a table that is missing, there twice, of another type, or without its attributes
*/
PetscErrorCode TrsCheckpointTables(MPI_Comm comm, const char *path, int n, const char *const *names,
                                   TrsStoredTable *stored);

/* Could a checkpoint be made at this file? To be asked before hours of training. NULL: not asked.
   Collective on comm. Errors (agreed): CANT_CREATE */
PetscErrorCode TrsCheckpointTry(MPI_Comm comm, const char *file);

/*
  A folder of checkpoints, step-<9 digits>.h5, in the hands of the one run that writes there.

  TrsCheckpointFolderOpen - Make the folder, take its lock (TrsRunFolderLock()) until Close, and
  see whose files are there.

  Collective on comm.

  In:     keep  how many files of the run stay
          wait  for another job to leave
  Errors (agreed): CANT_CREATE, STOPPED, NO_INPUT
*/
typedef struct TrsCheckpointFolderImpl *TrsCheckpointFolder;
PetscErrorCode TrsCheckpointFolderOpen(MPI_Comm comm, const char *path, int keep, const TrsRunWait *wait,
                                       TrsCheckpointFolder *folder);
PetscErrorCode TrsCheckpointFolderClose(TrsCheckpointFolder *folder); /* accepts NULL */

/*
  TrsCheckpointFolderClaim - May this run write here?

  Collective. With resume the files must be of one run. Without, there must be none: a run that
  starts does not mix its files with another's. With `aside` (else NULL) the files that are there
  are moved into a new folder of that name within this one.
  Errors (agreed): CANT_CREATE, naming the run and the ways out
*/
PetscErrorCode TrsCheckpointFolderClaim(TrsCheckpointFolder folder, PetscBool resume, const char *aside);

/* The run whose files a resume has found; "": none, or of an older program. Borrowed. Not collective. */
const char *TrsCheckpointFolderRun(TrsCheckpointFolder folder);

/*
  TrsCheckpointFolderWrite - Publish the file of info->step, then remove what is too many of the
  run's own files (info->run_id) up to that step.

  Collective. Neither the file just written nor any other run's is ever removed.
  Errors: those of TrsCheckpointWrite(); CANT_CREATE
*/
PetscErrorCode TrsCheckpointFolderWrite(TrsCheckpointFolder folder, const TrsState *state,
                                        const TrsCheckpointInfo *info);

/* Has a file that was found, and then could not be read, been removed meanwhile? Then a newer one
   is there. Rank 0 looks. Collective. */
PetscErrorCode TrsCheckpointIsGone(MPI_Comm comm, const char *path, PetscBool *gone);

/*
  TrsCheckpointFolderFindNewest - The newest file of a folder that opens, has the right format and
  whose checksums hold.

  Collective on comm. Needs no lock: where a run removes the file meanwhile, the search begins
  again. Files that fail are named in a warning on rank 0. Left-over temporary files are ignored.

  Out:    path  free with PetscFree(); NULL when there is no file at all
  Errors (agreed): DATA: there are files and none is valid: a run must not start anew beside them;
                   CANT_CREATE: files of several runs; NO_INPUT
*/
PetscErrorCode TrsCheckpointFolderFindNewest(MPI_Comm comm, const char *folder, char **path);
