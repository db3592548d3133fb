/* SPDX-License-Identifier: BSD-3-Clause */
/* -task train. */
#pragma once

#include "core/options/options.h"

/*
  TrsRunTrain - Train, checkpoint and evaluate as the options say.

  Collective on comm.

  Errors: STOPPED after a checkpoint on request; NOT_FINITE for a loss that is not finite; all
          errors of set-up, reading and writing
*/
PetscErrorCode TrsRunTrain(MPI_Comm comm, TrsOptions options);
