/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A training that follows a folder (-data_follow) reads a stream of samples: those of -data_train,
  and then those of the folder's files in the order of the files' names. Rank 0 looks into the
  folder. All ranks take a file between the same two steps. Each global batch has the next samples
  of the stream, so results do not depend on the times at which files come.

  A place in the stream (TrsFollowPlace) is the number of samples that were taken so far, with the
  last file from which samples were taken.
*/
#pragma once

#include "data/reader.h"
#include "io/checkpoint/checkpoint.h"

typedef struct TrsFollowImpl *TrsFollow;

extern const TrsOptionGroup trs_follow_options;

/*
  TrsFollowCreate - Read the options, and the place at which a resumed training continues.

  Collective on comm.

  In:     resumed_from  the checkpoint of a resumed training, or NULL
  Out:    follow        NULL without -data_follow. Free with TrsFollowDestroy()
  Errors (agreed): OPTION; NO_INPUT if the folder cannot be read; errors of
    TrsCheckpointReadFollowPlace()
*/
PetscErrorCode TrsFollowCreate(MPI_Comm comm, TrsOptions options, const char *resumed_from,
                               TrsFollow *follow);
PetscErrorCode TrsFollowDestroy(TrsFollow *follow);

/*
  TrsFollowOpenData - Open the dataset with which the training starts: the files of -data_train and,
    if the training is resumed, the file of its place. If neither gives a file, wait for the first
    file of the folder.

  Collective.

  In:     names    [n] the files of -data_train; n may be 0
  Out:    dataset  close with TrsDatasetClose(). It grows with TrsFollowTake()
  Errors (agreed): those of TrsDatasetOpen(); STOPPED; NO_INPUT if the stream ends without a file,
    or if the file of the place is missing; DATA if that file has another number of samples than
    before; OPTION if the place is in -data_train, which is not given
*/
PetscErrorCode TrsFollowOpenData(TrsFollow follow, int n, const char *const *names, TrsDataset *dataset);

/*
  Let a reader read the stream from the training's place on. `step` is the reader's first step.
  `tables` is borrowed. From now on, a file is bad if its ids need more rows than `tables` have. Not
  collective.
*/
PetscErrorCode TrsFollowSetReader(TrsFollow follow, TrsReader reader, int64_t step,
                                  const TrsTableConfigs *tables);

typedef enum {
  TRS_FOLLOW_NOTHING, /* no new file */
  TRS_FOLLOW_FILE,    /* a file was taken or set aside */
  TRS_FOLLOW_END,     /* the stream has ended */
  TRS_FOLLOW_STOPPED  /* a rank was asked to stop; only if `waits` is true */
} TrsFollowNews;

/*
  TrsFollowTake - Look for the next file of the folder, and append it to the stream.

  Collective. All ranks must call it between the same two steps.

  In:     position  number of samples that have been trained on
          waits     true: the ranks have nothing else to do. If there is no news, they sleep for a
                    moment
  Out:    news      the same on all ranks
  Errors (agreed): DATA or NO_INPUT for a bad file, without -data_follow_bad skip; MEMORY, IO
*/
PetscErrorCode TrsFollowTake(TrsFollow follow, int64_t position, PetscBool waits, TrsFollowNews *news);

/* True if the stream has ended. Not collective. */
PetscBool TrsFollowHasEnded(TrsFollow follow);

/* Why the stream has ended, such as "STOP in new". Not collective. */
const char *TrsFollowEnd(TrsFollow follow);

/*
  Find the place after the first `position` samples of the stream. `position` must be at least that
  of the last call of TrsFollowTake(). Not collective.
*/
void TrsFollowFindPlace(TrsFollow follow, int64_t position, TrsFollowPlace *place);

/*
  Get the path of the folder, the number of files that were taken since this start of the program,
  and the number of files that were set aside. Any argument may be NULL. Not collective.
*/
void TrsFollowCount(TrsFollow follow, const char **path, int64_t *n_taken, int64_t *n_bad);

/* True if the training evaluates each file before it trains on it. Not collective. */
PetscBool TrsFollowEvaluates(TrsFollow follow);

/* A file of the folder that the training must evaluate. */
typedef struct {
  const char *file; /* its name; borrowed until the next call of TrsFollowTake() */
  int64_t position; /* index of its first sample in the stream */
  int64_t first, n; /* its samples in the dataset */
} TrsFollowAhead;

/*
  Find the next file to evaluate whose first sample is one of samples from .. to - 1 of the stream.
  Each file is found once. Returns false if there is no such file, or if the training does not
  evaluate files. Not collective.
*/
PetscBool TrsFollowNextAhead(TrsFollow follow, int64_t from, int64_t to, TrsFollowAhead *ahead);
