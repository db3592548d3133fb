/* SPDX-License-Identifier: BSD-3-Clause */
/* What lies in a folder of checkpoints, and whose it is: files step-<9 digits>.h5. Internal to io/, not collective where not said otherwise. */
#pragma once

#include "io/run_folder.h"

#include <stdint.h>

typedef struct {
  int64_t step;
  char run_id[TRS_RUN_ID_SIZE]; /* "": the file names no run, or cannot be read */
} TrsCheckpointEntry;

typedef struct {
  int n;
  TrsCheckpointEntry *entry; /* [n] newest first; free with PetscFree() */
} TrsCheckpointList;

/* Prefix of the files' names. */
extern const char trs_checkpoint_prefix[];

/* The path of a step's file, free with PetscFree(). */
PetscErrorCode TrsCheckpointStepPath(const char *folder, int64_t step, char **path);

/*
  TrsCheckpointListSteps - The files of a folder, without whose they are; none where there is no such folder.

  Errors: NO_INPUT, a folder that cannot be listed
*/
PetscErrorCode TrsCheckpointListSteps(const char *folder, TrsCheckpointList *list);

/* Find out which run wrote each of the files. A child process looks at them, so a damaged file does no harm. Takes the HDF5 lock. */
PetscErrorCode TrsCheckpointListRuns(const char *folder, TrsCheckpointList *list);

/* The list of rank 0, with whose the files are, on all ranks. Collective. Errors (agreed): NO_INPUT */
PetscErrorCode TrsCheckpointListAgreed(MPI_Comm comm, const char *folder, TrsCheckpointList *list);

/*
  TrsCheckpointListOneRun - The one run whose files are listed; files that name none belong to it, too.

  Out:    run_id  "" where no file names a run
  Errors: CANT_CREATE: files of several runs, each named with its newest step
*/
PetscErrorCode TrsCheckpointListOneRun(const char *folder, const TrsCheckpointList *list,
                                       char run_id[TRS_RUN_ID_SIZE]);
