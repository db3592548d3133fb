/* SPDX-License-Identifier: BSD-3-Clause */
/* Report options that differ between a checkpoint and the run that starts from it. */
#pragma once

#include "core/options/option_list.h"
#include "session/session.h"

/*
  TrsResumeTell - Print a line for each option that differs from the checkpoint's, and for another
    number of samples.

  Skips options that decide where, how fast or with which outputs the run goes on, and options that
  the user left to the checkpoint's model. Logically collective; rank 0 prints.

  In: start  as read from the checkpoint
*/
PetscErrorCode TrsResumeTell(const TrsSession *session, const TrsCheckpointInfo *start);

/*
  TrsModelTell - Print a line for each option that has one value in a checkpoint's model
    (TrsCheckpointModel()) and another in the session's model.

  Logically collective; rank 0 prints.
*/
PetscErrorCode TrsModelTell(const TrsSession *session, const char *model);

/*
  TrsModelTables - Get the tables of a checkpoint's model in order, both as a list and as the text
    of its option -tables.

  Not collective. Out: text, free with PetscFree(); list, free with TrsOptionListFree(). Both are
  empty if the model does not list tables.
*/
PetscErrorCode TrsModelTables(const char *model, char **text, TrsOptionList *list);
