/* SPDX-License-Identifier: BSD-3-Clause */
/* -task bench -bench_qcomm: what quantised communication loses and saves on a run's own numbers. */
#pragma once

#include "core/options.h"

/*
  TrsBenchQcomm - Train -bench_steps steps as the options say, then encode and decode the last batch's pooled rows and gradients in each precision.

  Collective on comm. Prints a line for each precision and direction, over all ranks: bytes on the wire to those of fp32, mean error (sum of
  |x' - x| to sum of |x|), largest error (to the largest |x|), and how many of the numbers other than 0 became 0. What a sum over ranks
  uses in place of fp8 and int8 is said, too. With -output: /qcomm/forward, /qcomm/backward float64 [precisions, 4], attribute qcomm_precisions.
  Errors: OPTION, DATA, those of a training
*/
PetscErrorCode TrsBenchQcomm(MPI_Comm comm, TrsOptions options);
