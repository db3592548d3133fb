/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This module tells what has changed since the run was
  interrupted, if the run can go on with the change.
*/
#pragma once

#include "run/session.h"

/*
  TrsResumeTell - Print a line for each option that differs from the checkpoint's, and for another
    number of samples.

  Only options of data, model and optimizers count. Logically collective; rank 0 prints.

  In: start  as read from the checkpoint
*/
PetscErrorCode TrsResumeTell(const TrsSession *session, const TrsCheckpointInfo *start);
