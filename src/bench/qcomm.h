/* SPDX-License-Identifier: BSD-3-Clause */
/*
  -task bench -bench_qcomm: loss and savings of quantised communication, measured on a run's own
  numbers.
*/
#pragma once

#include "core/options/options.h"

/*
  TrsBenchQcomm - Train -bench_steps steps, then encode and decode the last batch in each precision.

  Collective on comm. The encoded numbers are the last batch's pooled rows and gradients. The
  function prints a line for each precision and direction, over all ranks: bytes on the wire
  relative to fp32, mean error (sum of |x' - x| to sum of |x|), largest error (to the largest |x|),
  and the share of numbers other than 0 that became 0. It also prints the precision that a sum over
  ranks uses in place of fp8 and int8. With -output: /qcomm/forward, /qcomm/backward float64
  [precisions, 4], attribute qcomm_precisions.

  Errors: OPTION, DATA, errors of a training
*/
PetscErrorCode TrsBenchQcomm(MPI_Comm comm, TrsOptions options);
