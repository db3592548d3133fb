/* SPDX-License-Identifier: BSD-3-Clause */
/* What has changed since the run was interrupted that it goes on from: said, where the run can go on with it. */
#pragma once

#include "run/session.h"

/*
  TrsResumeTell - A line for each option of data, model and optimizers that differs from the checkpoint's, and for another number of samples.

  Logically collective; rank 0 prints. In: start  as it was read from the checkpoint
*/
PetscErrorCode TrsResumeTell(const TrsSession *session, const TrsCheckpointInfo *start);
