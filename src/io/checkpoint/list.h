/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The files step-<9 digits>.h5 in a folder of checkpoints, and the runs that wrote them. Internal to
  io/, and not collective unless stated otherwise.
*/
#pragma once

#include "io/run_folder.h"

#include <stdint.h>

typedef struct {
  int64_t step;
  char run_id[TRS_RUN_ID_SIZE]; /* "" if the file names no run or cannot be read */
} TrsCheckpointEntry;

typedef struct {
  int n;
  TrsCheckpointEntry *entry; /* [n] newest first; free with PetscFree() */
} TrsCheckpointList;

/* Prefix of the files' names. */
extern const char trs_checkpoint_prefix[];

/* Make the path of a step's file. Free it with PetscFree(). */
PetscErrorCode TrsCheckpointStepPath(const char *folder, int64_t step, char **path);

/*
  List the files and their runs as rank 0 sees them, on all ranks. Collective. Errors (agreed):
  NO_INPUT.
*/
PetscErrorCode TrsCheckpointListAgreed(MPI_Comm comm, const char *folder, TrsCheckpointList *list);

/*
  TrsCheckpointListOneRun - Find the one run that owns the listed files. Files without an id count
    as its own.

  Out:    run_id  "" if no file names a run
  Errors: CANT_CREATE for files of several runs, each named with its newest step
*/
PetscErrorCode TrsCheckpointListOneRun(const char *folder, const TrsCheckpointList *list,
                                       char run_id[TRS_RUN_ID_SIZE]);
