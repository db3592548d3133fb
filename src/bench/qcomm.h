/* SPDX-License-Identifier: BSD-3-Clause */
/*
  -task bench -bench_qcomm: measures on a run's own numbers how much precision quantised
  communication loses and how many bytes it saves.
*/
#pragma once

#include "core/options/options.h"

/*
  TrsBenchQcomm - Train -bench_steps steps. Then encode and decode numbers of the last batch in each
    precision.

  Collective on comm. The encoded numbers are the last batch's pooled rows and gradients. The
  function prints a line for each precision and direction, over all ranks: bytes in messages
  relative to fp32, average error (sum of |x' - x| divided by sum of |x|), largest error (divided by
  the largest |x|), and the share of numbers other than 0 that became 0. It also prints the
  precision that a sum over ranks uses instead of fp8 and int8. -output gets the datasets
  /qcomm/forward and /qcomm/backward, float64 [precisions, 4], with the attribute qcomm_precisions.

  Errors: OPTION, DATA, errors of a training
*/
PetscErrorCode TrsBenchQcomm(MPI_Comm comm, TrsOptions options);
