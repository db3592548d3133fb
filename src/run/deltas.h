/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The deltas of a training are files in a folder of their own. Each has the rows that have changed
  since the file before it (input/FORMAT.md, "Delta").

  A chain of deltas begins with the weights with which the run begins. A checkpoint contains its
  place in the chain, and the rows that have changed since the last delta. So a resumed training
  goes on with the chain at any checkpoint, even if the checkpoint's step has no delta. The
  interrupted job may have written deltas after this checkpoint. The resumed training repeats their
  steps, so it removes these deltas before it writes its next one.
*/
#pragma once

#include "session/start_state.h"

/* the options -delta_every, -delta_dir and -delta_data_type */
extern const TrsOptionGroup trs_delta_options;

typedef struct {
  int64_t every; /* 0: no deltas */
  const char *dir;
  TrsDType dtype;             /* TRS_N_DTYPES: the type of each table */
  TrsCheckpointFolder folder; /* NULL without deltas */
  TrsState state;             /* all tensors that a delta has */
  TrsDeltaPlace place;        /* the last delta that was written */
  int64_t n_failed;           /* number of deltas that could not be written since `place` */
} TrsDeltas;

/* Read the options. Not collective. Errors: OPTION */
PetscErrorCode TrsDeltasFromOptions(TrsOptions options, TrsDeltas *deltas);

/*
  TrsDeltasOpenFolder - Make the folder and lock it, and check that this run may write there.

  Collective on comm. Must be called after the checkpoint folder was opened. Does nothing without
  deltas.

  In:     checkpoint_dir  must be another folder; may be NULL
  Errors (agreed): OPTION; those of TrsCheckpointFolderOpen() and TrsCheckpointFolderClaim()
*/
PetscErrorCode TrsDeltasOpenFolder(TrsDeltas *deltas, MPI_Comm comm, TrsOptions options,
                                   const char *checkpoint_dir);

/*
  Check that this session's model can note which rows change, which `option` needs. Not collective.
  Errors: OPTION
*/
PetscErrorCode TrsCheckNotesChanges(const TrsSession *session, const char *option);

/* Check that deltas support this session's model. Not collective. Errors: OPTION */
PetscErrorCode TrsDeltasCheck(const TrsDeltas *deltas, const TrsSession *session);

/*
  TrsDeltasStart - Find the place in the chain at which the training starts. Must be called after
    the weights were read.

  Collective.

  In:     from, start  the result of TrsStartFind() and TrsStartStateLoad()
          run_id       the id of the run
  Errors (agreed): CANT_CREATE if the folder has the deltas of another run; DATA; those of
          TrsCheckpointId()
*/
PetscErrorCode TrsDeltasStart(TrsDeltas *deltas, TrsSession *session, const TrsStartPoint *from,
                              const TrsCheckpointInfo *start, const char *run_id);

/*
  TrsDeltasWrite - Write a delta of all changes since the last one.

  Collective. If the file cannot be written, rank 0 prints why, the training goes on, and the next
  delta also has these changes.

  InOut:  info  as for a checkpoint of this step; the function sets is_delta, place and id
  Errors (agreed): NOT_FINITE, MEMORY
*/
PetscErrorCode TrsDeltasWrite(TrsDeltas *deltas, TrsSession *session, TrsCheckpointInfo *info);

PetscErrorCode TrsDeltasClose(TrsDeltas *deltas);
