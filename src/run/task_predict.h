/* SPDX-License-Identifier: BSD-3-Clause */
/* -task predict: inference with quantised tables. */
#pragma once

#include "core/options/options.h"

/*
  TrsRunPredict - Quantise and shard the tables of a checkpoint, and predict over -data_eval.

  Collective on comm. The checkpoint is -init_from, else the newest in -checkpoint_dir. Tables are
  quantised to their data_type. The results are predictions, latency, and metrics if there are
  labels. -quant_checkpoint gets the quantised tables.

  Errors: those of its parts; STOPPED if a signal asked for an end before the last batch
*/
PetscErrorCode TrsRunPredict(MPI_Comm comm, TrsOptions options);
