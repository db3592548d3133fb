/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A checkpoint is a model: it keeps the options that define the model, and evaluation and prediction
  take them from there.
*/
#pragma once

#include "session/session.h"

/*
  TrsCheckpointModelTake - Let the options of a checkpoint's model stand below those of the user.

  Collective on comm. Call this before the session is opened. A checkpoint of an earlier version has
  no such options, which is said on rank 0.

  Errors (agreed): those of TrsCheckpointModel() and TrsOptionsTakeModel()
*/
PetscErrorCode TrsCheckpointModelTake(MPI_Comm comm, TrsOptions options, const char *path);

/*
  Check that the evaluation data has the dense features of the checkpoint's model. Not collective.
  Errors: DATA.
*/
PetscErrorCode TrsCheckpointModelCheckData(const TrsSession *session);

/* The options of the session's model for a checkpoint. Free with PetscFree(). Not collective. */
PetscErrorCode TrsCheckpointModelText(const TrsSession *session, char **text);
