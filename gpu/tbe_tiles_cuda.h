/* SPDX-License-Identifier: BSD-3-Clause */
/* The update for most tables: rowwise_adagrad on rows that fit in a group of lanes at once. */
#pragma once

#include "gpu/tbe_occurrences_cuda.h"
#include "gpu/tbe_step_cuda.h"

/*
  Update the rows in class c of a backward whose pieces are summed. The bits equal those of
  update_kernel (tbe_backward_cuda.cu). Enqueued on the stream.

  Out: done  false: nothing was done, and the class needs update_kernel
*/
PetscErrorCode TrsCudaUpdateTiles(TrsStream stream, const Backward *b, int c, const Step &step, bool *done);
