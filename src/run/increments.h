/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Incremental checkpoints of a training (input/FORMAT.md, "Incremental checkpoints"). They form
  chains: a full checkpoint, then increments, each with the rows and states that have changed since
  the file before it. A resumed training starts with exactly the contents of a file, so it continues
  this file's chain.
*/
#pragma once

#include "session/start_state.h"

/* the option -checkpoint_full_every */
extern const TrsOptionGroup trs_increment_options;

typedef struct {
  int64_t full_every;  /* 1: all checkpoints are full */
  TrsState state;      /* all tensors of an increment */
  TrsDeltaPlace place; /* the last checkpoint; without a base, the next checkpoint is full */
  char id[TRS_FILE_ID_SIZE];
} TrsIncrements;

/* Read the option. Not collective. Errors: OPTION */
PetscErrorCode TrsIncrementsFromOptions(TrsOptions options, TrsIncrements *increments);

/* Check that this session's model can write increments. Not collective. Errors: OPTION */
PetscErrorCode TrsIncrementsCheck(const TrsIncrements *increments, const TrsSession *session);

/*
  TrsIncrementsStart - Find the chain that the training continues. Must be called after the weights
    were read.

  Collective.

  In:     from   as TrsStartFind() returned it
          start  as TrsStartStateLoad() returned it
  Errors (agreed): those of TrsCheckpointId()
*/
PetscErrorCode TrsIncrementsStart(TrsIncrements *increments, TrsSession *session, const TrsStartPoint *from,
                                  const TrsCheckpointInfo *start);

/*
  TrsIncrementsChoose - Choose if the next checkpoint is full or an increment.

  Collective.

  InOut:  info  as for a full checkpoint; the function sets is_increment, chain and id
*/
PetscErrorCode TrsIncrementsChoose(TrsIncrements *increments, TrsSession *session, TrsCheckpointFolder folder,
                                   TrsCheckpointInfo *info);

/* Write the chosen checkpoint into the folder. Collective. As TrsCheckpointFolderWrite() */
PetscErrorCode TrsIncrementsWrite(TrsIncrements *increments, TrsSession *session, TrsCheckpointFolder folder,
                                  const TrsCheckpointInfo *info);

/*
  The chosen checkpoint's contents are fixed: from now on, changes belong to the next one.
  TrsModelParallelListChanges() must have been called before. Not collective.
*/
void TrsIncrementsTaken(TrsIncrements *increments, TrsSession *session);

/*
  The chosen checkpoint is in place. If `info` is NULL, it could not be written, and the next one is
  full. Not collective.
*/
PetscErrorCode TrsIncrementsWritten(TrsIncrements *increments, const TrsCheckpointInfo *info);

PetscErrorCode TrsIncrementsFree(TrsIncrements *increments);
