/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Supports checkpoints as models: a checkpoint holds the options that define its model. Evaluation
  and prediction take these options from the checkpoint.
*/
#pragma once

#include "session/session.h"

/*
  TrsCheckpointModelTake - Add the options of a checkpoint's model. The user's options override
    them.

  Collective on comm. Must be called before the session is opened. A checkpoint of an earlier
  version does not have these options. Rank 0 then prints a note.

  Errors (agreed): those of TrsCheckpointModel() and TrsOptionsTakeModel()
*/
PetscErrorCode TrsCheckpointModelTake(MPI_Comm comm, TrsOptions options, const char *path);

/*
  Check that the evaluation data has the same number of dense features as the checkpoint's model.
  Not collective. Errors: DATA.
*/
PetscErrorCode TrsCheckpointModelCheckData(const TrsSession *session);

/*
  Write the options of the session's model to a text for a checkpoint. Free it with PetscFree(). Not
  collective.
*/
PetscErrorCode TrsCheckpointModelText(const TrsSession *session, char **text);
