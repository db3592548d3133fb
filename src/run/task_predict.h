/* SPDX-License-Identifier: BSD-3-Clause */
/* -task predict: inference with quantised tables. */
#pragma once

#include "core/options.h"

/*
  TrsRunPredict - Tables of a checkpoint (-init_from, else the newest in -checkpoint_dir) quantised to their data_type and sharded, forward over -data_eval,
  predictions, latency, and metrics where there are labels; the quantised tables to -quant_checkpoint.

  Collective on comm. Errors: those of its parts; STOPPED when a signal asked for an end before the last batch
*/
PetscErrorCode TrsRunPredict(MPI_Comm comm, TrsOptions options);
