/* SPDX-License-Identifier: BSD-3-Clause */
/* -task train. */
#pragma once

#include "core/options/options.h"

/*
  TrsRunTrain - Train a model, write checkpoints, and evaluate.

  Collective on comm.

  Errors: STOPPED if a signal requested a stop, after a checkpoint; NOT_FINITE for a loss that is
          not finite; all errors of set-up, reading and writing
*/
PetscErrorCode TrsRunTrain(MPI_Comm comm, TrsOptions options);
