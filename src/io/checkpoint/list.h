/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The files step-<9 digits>.h5 in a folder of checkpoints, and the runs that wrote them. Internal to
  io/. Functions are not collective unless stated otherwise.
*/
#pragma once

#include "io/run_folder.h"

#include <stdint.h>

typedef struct {
  int64_t step;
  char run_id[TRS_RUN_ID_SIZE]; /* "" if the file names no run or cannot be read */
  /* for an increment, the step of the file before it, which it needs; -1 for any other file */
  int64_t needs;
} TrsCheckpointEntry;

typedef struct {
  int n;
  TrsCheckpointEntry *entry; /* [n] newest first; free with PetscFree() */
} TrsCheckpointList;

/* The beginning of the files' names. */
extern const char trs_checkpoint_prefix[];

/* Make the path of a step's file. Free it with PetscFree(). */
PetscErrorCode TrsCheckpointStepPath(const char *folder, int64_t step, char **path);

/*
  List the files and their runs on all ranks. All ranks get rank 0's list. Collective. Errors
  (agreed): NO_INPUT.
*/
PetscErrorCode TrsCheckpointListAgreed(MPI_Comm comm, const char *folder, TrsCheckpointList *list);

/*
  TrsCheckpointListOneRun - Find the one run that owns the listed files. Files without an id count
    as files of this run.

  Out:    run_id  "" if no file names a run
  Errors: CANT_CREATE if files belong to several runs; the message names each run and its newest
          step
*/
PetscErrorCode TrsCheckpointListOneRun(const char *folder, const TrsCheckpointList *list,
                                       char run_id[TRS_RUN_ID_SIZE]);
