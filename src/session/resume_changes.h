/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports options that differ between a checkpoint and the run that starts from it. */
#pragma once

#include "core/options/option_list.h"
#include "session/session.h"

/*
  TrsResumeTell - Print a line for each option that differs from the checkpoint, and a line if the
    number of samples differs.

  Skips options that only set where, how fast or with which outputs the run continues. Also skips
  options whose values come from the checkpoint's model. Logically collective; rank 0 prints.

  In: start  the information that was read from the checkpoint
*/
PetscErrorCode TrsResumeTell(const TrsSession *session, const TrsCheckpointInfo *start);

/*
  TrsModelTell - Print a line for each option whose value in a checkpoint's model
    (TrsCheckpointModel()) differs from its value in the session's model.

  Logically collective; rank 0 prints.
*/
PetscErrorCode TrsModelTell(const TrsSession *session, const char *model);

/*
  TrsModelTables - Get the names of the tables in a checkpoint's model, in order. The result is both
    a list and the text of the option -tables.

  Not collective. Out: text, free with PetscFree(); list, free with TrsOptionListFree(). Both are
  empty if the model does not list tables.
*/
PetscErrorCode TrsModelTables(const char *model, char **text, TrsOptionList *list);
