/* SPDX-License-Identifier: BSD-3-Clause */
/* -task predict: inference with quantised tables. */
#pragma once

#include "core/options/options.h"

/*
  TrsRunPredict - Quantise and shard a checkpoint's tables, and predict over -data_eval.

  Collective on comm. The checkpoint is -init_from, or without this option the newest in
  -checkpoint_dir. Tables are quantised to their data_type. The results have predictions, latencies,
  and metrics if there are labels. The quantised tables are saved to the file of -quant_checkpoint.

  Errors: those of its parts; STOPPED if a signal requested a stop before the last batch
*/
PetscErrorCode TrsRunPredict(MPI_Comm comm, TrsOptions options);
