/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A checkpoint holds logical tensors in one HDF5 file. All ranks write at the same time, and one
  rename publishes the file (format: input/FORMAT.md).

  Rank 0 lays out a file with early-allocated datasets (serial HDF5 in memory, latest format,
  checksummed metadata). It copies the file to a temporary one on disk and reserves the space
  (fallocate), so a full disk is found before any data is written. Every rank then writes its
  rectangles with pwrite at the datasets' file offsets. The program makes no collective HDF5 call,
  because the other ranks would wait in it forever if one rank fails.

  Most datasets are contiguous. Only tensors that are cut by columns are chunked, so that each
  rank's columns are contiguous in the file. After all ranks have written successfully, rank 0 adds
  the checksum of each part, flushes the file, renames it and flushes the folder. A published
  checkpoint is never opened for writing.
*/
#pragma once

#include "io/follow_folder.h"
#include "io/output.h"
#include "io/run_folder.h"
#include "io/state.h"

/*
  Numbers that are stored as a root attribute float64 [n]. n is 0 if the file has no such attribute.
  When writing, the numbers are borrowed. After reading, they must be freed with
  TrsCheckpointInfoFree().
*/
typedef struct {
  int n;
  double *value;
} TrsCheckpointNumbers;

/*
  The place of a training that follows a folder (-data_follow): the last file from which samples
  were taken.
*/
typedef struct {
  int64_t position;           /* number of samples taken so far, from -data_train and the folder */
  char file[TRS_FOLLOW_NAME]; /* name of the file; "" for -data_train */
  int64_t taken;              /* number of samples that were taken from the file */
  int64_t samples;            /* number of samples in the file */
  int64_t hash;               /* sample_hash of the file (TrsDatasetInfo) */
} TrsFollowPlace;

/* 16 hex digits and the final 0. */
enum { TRS_FILE_ID_SIZE = 17 };

/*
  A place in a chain of deltas (input/FORMAT.md, "Delta"): the point after the base and a number of
  deltas. If `base` is "", there is no chain. The place in a chain of incremental checkpoints has
  the same form; its base is the full checkpoint.
*/
typedef struct {
  /*
    Id of the base. This is the checkpoint with whose weights the chain begins (TrsCheckpointId()).
    If no file has exactly these weights, base is the id of the run. base_step is the number of
    updates that the base has seen.
  */
  char base[TRS_FILE_ID_SIZE];
  int64_t base_step;
  int64_t number; /* number of deltas since the base */
  /* number of updates that the last delta has seen; if there is no delta, that of the base */
  int64_t step;
  /* id of the last delta's file; if there is no delta, that of the base */
  char id[TRS_FILE_ID_SIZE];
} TrsDeltaPlace;

typedef struct {
  int64_t step; /* number of updates done so far */
  /* for each kind of state: number of updates done before the state began */
  int64_t states_from[TRS_STATES_KINDS];
  int64_t epoch, samples_seen;
  /* number of steps of the training data that are done; a resume continues there */
  int64_t run_step;
  int64_t global_batch;   /* number of samples in a full step over all ranks, 0 if unknown */
  int64_t epoch_steps;    /* number of steps in an epoch of the training data, 0 if unknown */
  int64_t evaluation_due; /* 1 if the evaluation after this step is still to be done */
  int64_t data_samples;   /* number of samples of the training data, 0 if unknown */
  /* sample_hash of the training data (TrsDatasetInfo), 0 if unknown */
  int64_t data_hash;
  PetscBool follows;            /* true if the training follows a folder */
  TrsFollowPlace follow_place;  /* only if it does */
  char run_id[TRS_RUN_ID_SIZE]; /* id of the run that wrote the file, "" if unknown */
  const char *options;          /* text of the configuration */
  const char *plan;             /* the plan as JSON text */
  const char *model;            /* text of the options that define the model, or NULL */
  /* the mapping of the data (spec/mapping.h), or NULL; only rank 0 needs it */
  const char *mapping;
  /*
    Numbers of a training. Each array has a layout that its own module defines. When writing, only
    rank 0 needs metrics_window.
  */
  TrsCheckpointNumbers metrics, metrics_exact, metrics_window, early_stopping;
  const char *metrics_of; /* names of the tasks that the metrics belong to, or NULL */
  /*
    The place in a chain of deltas. For a checkpoint, it is the place after the last delta that the
    checkpoint contains. For a delta, it is the place before this delta.
  */
  TrsDeltaPlace place;
  PetscBool is_delta; /* when writing: the file is a delta */
  /*
    When writing: the file is an incremental checkpoint, and `chain` is the place before it. After
    reading an increment: `chain` has the increment's number and base. For a full checkpoint,
    chain.number is 0.
  */
  PetscBool is_increment;
  TrsDeltaPlace chain;
  /* When writing: receives the file's id (TrsCheckpointId()) on all ranks; may be NULL. */
  char *id;
  /* After reading: 1 if a tool made the file, without the states that a training needs to go on. */
  int64_t weights_only;
  /*
    TrsCheckpointReadWanted() lists on rank 0 the tensors that are in the file and not in the state:
    tables ("embedding/user") and tensors of dense layers. Optimizer states are not counted.
  */
  int n_unexpected;
  char **unexpected; /* [n_unexpected] their names */
  /*
    If wanted->same is set, on rank 0: a state that is in the file but does not exist for the
    model's weights. NULL if there is none.
  */
  char *other_state;
  /*
    After reading: the file's options, and the names of the tasks of its metrics. NULL if the file
    has none.
  */
  char *options_read, *metrics_of_read;
  char *mapping_read; /* the file's mapping on rank 0; NULL if the file has none */
  /*
    When writing: how an existing file at the path is treated, used on rank 0. If it is NULL, an
    existing file is replaced.
  */
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
    Tables may have fewer rows in the file. The file's rows become the first rows here, and the rows
    after them are left unchanged.
  */
  PetscBool grow;
  /* The file should be from this same model, so also search for info->other_state. */
  PetscBool same;
  int n_tables;             /* number of tables to read; 0 means that everything is read */
  const char *const *table; /* [n_tables] the tables to read, with their states */
} TrsCheckpointWanted;

/*
  TrsCheckpointWrite - Write state to path and replace the previous file in one atomic rename.

  Collective on comm. The ranks write in rounds. After each round, ranks that wait for other ranks
  also report progress (TrsStageProgress). After an error the previous file is intact and the
  temporary file is removed.

  Errors (agreed, all ranks): NOT_FINITE if a number is an infinity or a NaN; CANT_CREATE; IO, with
    the needed and the free bytes if the disk is too small
*/
PetscErrorCode TrsCheckpointWrite(MPI_Comm comm, const char *path, const TrsState *state,
                                  const TrsCheckpointInfo *info);

/*
  The functions below write a file in stages, so that its data can be written beside other work.
  TrsCheckpointWrite() uses them, too:

    TrsCheckpointPlace, TrsCheckpointBegin
    for each stage: TrsCheckpointDoStage on each rank, then TrsCheckpointNextStage
    TrsCheckpointEnd
*/
typedef enum {
  TRS_CHECKPOINT_TENSORS,
  TRS_CHECKPOINT_MEANS, /* means over columns, which are computed from the file; may be left out */
  TRS_CHECKPOINT_PUBLISH,
  TRS_CHECKPOINT_WRITTEN /* nothing is left to do */
} TrsCheckpointStage;

typedef struct TrsCheckpointWriterImpl *TrsCheckpointWriter;

/*
  Settle the memory of a state before a file is written, and find the places of the rows of lists in
  the file. Changes the tensors of lists. Collective on comm. Errors (agreed): those of the state's
  functions.
*/
PetscErrorCode TrsCheckpointPlace(MPI_Comm comm, const TrsState *state);

/*
  TrsCheckpointBegin - Create the temporary file with its whole structure, and reserve its space.

  Collective on comm.

  In:     state   as TrsCheckpointPlace() left it; borrowed until TrsCheckpointEnd()
          info    borrowed for this call, except info->output and info->id
  Out:    writer  in its first stage; NULL after an error
  Errors (agreed): those of TrsCheckpointWrite()
*/
PetscErrorCode TrsCheckpointBegin(MPI_Comm comm, const char *path, const TrsState *state,
                                  const TrsCheckpointInfo *info, TrsCheckpointWriter *writer);

/*
  TrsCheckpointDoStage - Do this rank's work in the writer's stage.

  Not collective. Any one thread may call this function. It uses neither MPI nor HDF5.

  Errors: NOT_FINITE, IO
*/
PetscErrorCode TrsCheckpointDoStage(TrsCheckpointWriter writer);

/*
  TrsCheckpointNextStage - Go on to the next stage. All ranks must have agreed that they have done
    their work in the present stage.

  Collective on comm.

  Out:    stage  the next stage. At TRS_CHECKPOINT_WRITTEN, the file is in place and info->id is set
*/
PetscErrorCode TrsCheckpointNextStage(TrsCheckpointWriter writer, TrsCheckpointStage *stage);

/* Return the bytes that this rank has written to the file. Any thread may call this function. */
int64_t TrsCheckpointWrittenBytes(const struct TrsCheckpointWriterImpl *writer);

/* End the work of a thread that is in TrsCheckpointDoStage(), with the error STOPPED. */
void TrsCheckpointStop(TrsCheckpointWriter writer);

/* Free the writer. If the file is not in place, its temporary file is removed. Accepts NULL. */
PetscErrorCode TrsCheckpointEnd(TrsCheckpointWriter *writer);

/*
  TrsCheckpointRead - Read this rank's parts of every tensor of state. The checkpoint may have been
    written with any plan. If it is incremental, the full checkpoint and the increments before it
    are read from the same folder.

  Collective on comm. If the file has checksums of parts, they are verified first, each by one rank.
  If state->convert is set, it converts numbers of another type. States of another optimizer are not
  read.

  Out:    info  The following fields are read from the file:
                - all numbers and states_from. If the file lacks one of them, it is 0, and run_step
                  is `step`.
                - run_id. If the file lacks it, it is "".
                - metrics, metrics_exact, metrics_window and early_stopping. If the file lacks one
                  of them, its n is 0.
                - options_read and metrics_of_read. If the file lacks one of them, it is NULL.
                - mapping_read, on rank 0
                The fields options, plan, model, mapping, metrics_of and output are NULL. Free info
                with TrsCheckpointInfoFree()
          state's tensors  was_read and the fields below it
  Errors (agreed): NO_INPUT; DATA with file and dataset, for another format or version, a missing
    tensor, a wrong shape or type, a table of another id_map (TrsStateTensor), or a wrong checksum
*/
PetscErrorCode TrsCheckpointRead(MPI_Comm comm, const char *path, const TrsState *state,
                                 TrsCheckpointInfo *info);

/*
  Like TrsCheckpointRead(), but the file may have fewer or more tensors than the state, as `wanted`
  allows. Also sets info->unexpected.
*/
PetscErrorCode TrsCheckpointReadWanted(MPI_Comm comm, const char *path, const TrsState *state,
                                       const TrsCheckpointWanted *wanted, TrsCheckpointInfo *info);
PetscErrorCode TrsCheckpointInfoFree(TrsCheckpointInfo *info);

/*
  The form in which a checkpoint stores a table's weights: as numbers, or as the rows of a quantised
  table.
*/
typedef struct {
  PetscBool is_quantised;
  /* fp32, fp16 or bf16; for quantised rows the type of their values: int8, int4 or int2 */
  TrsDType dtype;
  /* size of the dataset; cols is the number of columns, or of bytes in a quantised row */
  int64_t rows, cols;
  int64_t embedding_dim, row_alignment; /* attributes of a dataset of quantised rows */
} TrsStoredTable;

/*
  TrsCheckpointTables - Find out how a checkpoint stores these tables.

  Collective on comm. Only metadata is read. TrsCheckpointRead() verifies the checksums.

  In:     names    [n] names of the tables
          id_maps  [n] words of their id_map
  Out:    stored   [n]
  Errors (agreed): NO_INPUT; DATA for another format, or a table that is missing, stored twice, of
    another type, without its attributes, or of another id_map: only the file or only the model
    gives its rows to ids, or they do so by different kinds of map
*/
PetscErrorCode TrsCheckpointTables(MPI_Comm comm, const char *path, int n, const char *const *names,
                                   const char *const *id_maps, TrsStoredTable *stored);

/* True if a tensor has the weights or a state of a table. TrsStateIsOf(): of the given table. */
PetscBool TrsStateIsOfTable(const TrsStateTensor *tensor);
PetscBool TrsStateIsOf(const TrsStateTensor *tensor, const char *table);

/* Does it hold a part of the ids that have the rows of a table? */
PetscBool TrsStateIsOfKeys(const TrsStateTensor *tensor);

/*
  TrsCheckpointModel - Read the options that define a checkpoint's model (TrsOptionsModelText()).

  Collective on comm. The checksum of the text is verified.

  Out:    text  the same on all ranks; NULL if an earlier version wrote the file, without this text.
                Free with PetscFree()
  Errors (agreed): NO_INPUT; DATA for another format or a damaged file
*/
PetscErrorCode TrsCheckpointModel(MPI_Comm comm, const char *path, char **text);

/*
  TrsCheckpointReadFollowPlace - Read the place of a training that follows a folder.

  Collective on comm. The checksum of the place is verified.

  Out:    follows  false if the training did not follow a folder; *place is then unchanged
  Errors (agreed): NO_INPUT; DATA for another format or a damaged file
*/
PetscErrorCode TrsCheckpointReadFollowPlace(MPI_Comm comm, const char *path, PetscBool *follows,
                                            TrsFollowPlace *place);

/*
  TrsCheckpointId - Compute the id of a file, a checkpoint or a delta, from its tables of checksums.

  Files with the same tensors and the same parts (/checksums) have the same id. A file without
  checksums has the id 0000000000000000. Collective on comm.

  Out:    id  16 hex digits, the same on all ranks
  Errors (agreed): NO_INPUT; DATA for another format or a damaged file
*/
PetscErrorCode TrsCheckpointId(MPI_Comm comm, const char *path, char id[TRS_FILE_ID_SIZE]);

/* --- reading deltas: not collective --- */

/* A delta's place in its chain. */
typedef struct {
  int64_t step;           /* number of updates that the model has seen after the delta */
  int64_t number;         /* number of the delta in its chain, from 1 */
  PetscBool forgets;      /* it removes ids after delta `number`, and the chain does not count it */
  TrsDeltaPlace previous; /* the place of the file before the delta */
  char id[TRS_FILE_ID_SIZE];
} TrsDeltaInfo;

/* These values say how a delta fits to the place of a model. */
typedef enum {
  TRS_DELTA_FITS,   /* it may be applied */
  TRS_DELTA_EARLY,  /* a delta before it is missing */
  TRS_DELTA_LATE,   /* the model has it, or has a later one */
  TRS_DELTA_FOREIGN /* it belongs to another chain, or to another branch of the chain */
} TrsDeltaFit;

/* Read a delta's place. Errors: NO_INPUT; DATA for another format or a damaged file */
PetscErrorCode TrsDeltaReadInfo(const char *path, TrsDeltaInfo *info);

/*
  TrsDeltaFollow - Find the place of a model after a delta.

  In:     path    of the delta, for messages
          own_id  id of the model's checkpoint, with which a new chain may begin; "" if a delta was
                  applied
          step    number of updates of the model
  InOut:  place   the model's; changed only if the delta fits
  Out:    fit
  Errors: DATA with the reason if the delta does not fit
*/
PetscErrorCode TrsDeltaFollow(const char *path, const TrsDeltaInfo *info, const char *own_id, int64_t step,
                              TrsDeltaPlace *place, TrsDeltaFit *fit);

/* The changed rows of a table in a delta. */
typedef struct {
  const char *table; /* the model's table, with `rows` rows in `buckets` buckets of ids, or 0 */
  int64_t rows, buckets;
  PetscBool grows; /* id_map dynamic: a delta has the numbers of rows in use */
  int64_t n, *row; /* [n] changed rows, ascending */
  int64_t *id;     /* [n] with buckets, else NULL, as held */
  uint8_t *held;   /* [n] 0: the row has no id */
  int64_t *used;   /* [buckets] rows in use; NULL if the delta does not have them */
} TrsDeltaTable;

/*
  TrsDeltaRead - Read a delta.

  The checksums are verified, unless state->unverified is set. The state has the dense tensors, and
  for each table a tensor of weights with rows_of and `take`, which gets the changed rows.

  InOut:  table  [n] all tables of the model; row, id, held and used are set. Free them with
                 TrsDeltaTableFree(), also after an error
  Errors: NO_INPUT; DATA for another format, a damaged file, or a delta of another model; MEMORY;
    IO; those of `take`
*/
PetscErrorCode TrsDeltaRead(const char *path, TrsState *state, int n, TrsDeltaTable *table);
PetscErrorCode TrsDeltaTableFree(TrsDeltaTable *table);

/*
  Check before hours of training that a checkpoint could be written to this file: rank 0 can create
  the file, and all ranks can open it. If `file` is NULL, nothing is checked. Collective on comm.
  Errors (agreed): CANT_CREATE, with the rank and its host.
*/
PetscErrorCode TrsCheckpointTry(MPI_Comm comm, const char *file);

/*
  Check before hours of training that a checkpoint can hold the names of the state's tensors.
  Messages name `path`, the path of the file or of the folder. If it is NULL, nothing is checked.
  Not collective, because all ranks have the same names. Errors: OPTION with the name.
*/
PetscErrorCode TrsCheckpointTryNames(const char *path, const TrsState *state);

/* A kind of folder for a run's files: words for messages. */
typedef struct {
  const char *option; /* names the folder */
  const char *file;   /* the word for one of its files */
  const char *remedy; /* if the folder has another run's files */
} TrsFolderKind;
extern const TrsFolderKind trs_folder_checkpoints, trs_folder_deltas;

typedef struct TrsCheckpointFolderImpl *TrsCheckpointFolder;

/*
  TrsCheckpointFolderOpen - Make a folder for checkpoints or deltas and lock it until it is closed.

  The folder holds files step-<9 digits>.h5. Only the one run that has the lock (TrsRunFolderLock())
  writes there. The function also finds the runs that wrote the existing files.

  Collective on comm.

  In:     kind  for messages
          keep  how many of the run's files to keep
          wait  how long to wait if another job has the folder
  Errors (agreed): CANT_CREATE, STOPPED, NO_INPUT
*/
PetscErrorCode TrsCheckpointFolderOpen(MPI_Comm comm, const char *path, const TrsFolderKind *kind, int keep,
                                       const TrsRunWait *wait, TrsCheckpointFolder *folder);
PetscErrorCode TrsCheckpointFolderClose(TrsCheckpointFolder *folder); /* accepts NULL */

/*
  TrsCheckpointFolderClaim - Check that this run may write into the folder.

  Collective. If `resume` is set, all files must belong to one run. If it is not set, there must be
  no files, because a new run must not mix its files with another run's files. If `aside` is not
  NULL, existing files are first moved into a new folder of this name within the folder.

  Errors (agreed): CANT_CREATE, with the run and possible remedies
*/
PetscErrorCode TrsCheckpointFolderClaim(TrsCheckpointFolder folder, PetscBool resume, const char *aside);

/*
  Return the id of the run that a resume continues: the run to which the existing files belong. If
  there are no files, it is the run of a job that was killed before its first file. The id is "" if
  there is no such run, or if an older program wrote the files. Accepts NULL. The string is
  borrowed. Not collective.
*/
const char *TrsCheckpointFolderRun(TrsCheckpointFolder folder);

/* True if the folder has no files step-*.h5. Not collective, the same on all ranks. */
PetscBool TrsCheckpointFolderIsEmpty(TrsCheckpointFolder folder);

/* Record which run owns the folder, in case this job is killed. Accepts NULL. Not collective. */
void TrsCheckpointFolderName(TrsCheckpointFolder folder, const char *run_id);

/*
  TrsCheckpointFolderWrite - Publish the file of info->step, then remove surplus files of this run.

  Collective. Only the run's own files (info->run_id) up to that step are counted and removed.
  Neither the file just written nor a file of another run is ever removed. Files that an increment
  needs stay as long as the increment. A file that a reader holds (TrsCheckpointFolderFindNewest())
  stays until a later call. If the folder was removed during the run, it is made and locked again.

  Errors: those of TrsCheckpointWrite(); CANT_CREATE if the folder now belongs to another run
*/
PetscErrorCode TrsCheckpointFolderWrite(TrsCheckpointFolder folder, const TrsState *state,
                                        const TrsCheckpointInfo *info);

/*
  Write a file in stages. TrsCheckpointFolderBegin() is TrsCheckpointBegin() for the file of
  info->step. TrsCheckpointFolderAdd() must be called when the file is in place. It removes surplus
  files. It reads the step, run_id, is_increment and chain of `info`. Both are collective. Errors:
  as for TrsCheckpointFolderWrite()
*/
PetscErrorCode TrsCheckpointFolderBegin(TrsCheckpointFolder folder, const TrsState *state,
                                        const TrsCheckpointInfo *info, TrsCheckpointWriter *writer);
PetscErrorCode TrsCheckpointFolderAdd(TrsCheckpointFolder folder, const TrsCheckpointInfo *info);

/*
  True if the folder still has all files that an increment after `step` would need. Collective.
*/
PetscErrorCode TrsCheckpointFolderHasChain(TrsCheckpointFolder folder, int64_t step, PetscBool *has);

/* The path of a step's file. Free it with PetscFree(). Not collective. */
PetscErrorCode TrsCheckpointFolderPath(TrsCheckpointFolder folder, int64_t step, char **path);

/*
  Remove the run's files of steps after `step`, newest first. A training must do this before it
  writes a delta, with the step of the last delta, because a resumed training repeats the later
  steps. Collective. Errors (agreed): IO
*/
PetscErrorCode TrsCheckpointFolderCut(TrsCheckpointFolder folder, const char *run_id, int64_t step);

/*
  After a file could not be read, check if it has been removed since it was found. If it has, a
  newer file exists. Rank 0 checks. Collective.
*/
PetscErrorCode TrsCheckpointIsGone(MPI_Comm comm, const char *path, PetscBool *gone);

/*
  TrsCheckpointFolderFindNewest - Find the newest valid file of a folder.

  A file is valid if it can be opened and has the right format and the right checksums. Collective
  on comm. No lock is needed: if a run removes the file meanwhile, the search begins again. Rank 0
  prints a warning for each invalid file. Left-over temporary files are ignored.

  Out:    hold  may be NULL. On rank 0 a descriptor that prevents a running training from removing
                the file, if the file system has fcntl locks. Release it with TrsCheckpointRelease()
          path  free with PetscFree(); NULL if there is no file at all
  Errors (agreed): DATA if there are files but none is valid, because a run must not start anew
    beside them; CANT_CREATE if the files belong to several runs; NO_INPUT
*/
PetscErrorCode TrsCheckpointFolderFindNewest(MPI_Comm comm, const char *folder, int *hold, char **path);

/*
  Prevent a running training from removing the file, if the file system has fcntl locks. Returns a
  descriptor for TrsCheckpointRelease(), or -1 if the file cannot be opened. Not collective.
*/
int TrsCheckpointHold(const char *path);

/* End the hold on a file, so that a running training may remove it. Accepts -1. Not collective. */
void TrsCheckpointRelease(int *hold);
