/* SPDX-License-Identifier: BSD-3-Clause */
/* This module tells which options differ between a checkpoint and the run that starts from it. */
#pragma once

#include "core/options/option_list.h"
#include "session/session.h"

/*
  TrsResumeTell - Print a line for each option that differs from the checkpoint's, and for another
    number of samples.

  Options that decide where, how fast or with which outputs the run goes on do not count, nor do
  those that the user left to the checkpoint's model. Logically collective; rank 0 prints.

  In: start  as read from the checkpoint
*/
PetscErrorCode TrsResumeTell(const TrsSession *session, const TrsCheckpointInfo *start);

/*
  TrsModelTell - Print a line for each option of a checkpoint's model, as TrsCheckpointModel() gives
    them, that the session's model has with another value.

  Logically collective; rank 0 prints.
*/
PetscErrorCode TrsModelTell(const TrsSession *session, const char *model);

/*
  TrsModelTables - The tables of a checkpoint's model in their order, and as its option -tables has
    them.

  Not collective. Out: text, free with PetscFree(); list, free with TrsOptionListFree(). Both are
  empty if the model lists none.
*/
PetscErrorCode TrsModelTables(const char *model, char **text, TrsOptionList *list);
