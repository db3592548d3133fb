/* SPDX-License-Identifier: BSD-3-Clause */
/* The update of most tables: rowwise_adagrad of rows that a group of lanes holds at once. */
#pragma once

#include "gpu/tbe_occurrences_cuda.h"
#include "gpu/tbe_step_cuda.h"

/*
  Update the rows of class c of a backward, whose pieces are summed. The bits are those of
  update_kernel (tbe_backward_cuda.cu). Enqueued on the stream.

  Out: done  false: nothing was done, the class needs update_kernel
*/
PetscErrorCode TrsCudaUpdateTiles(TrsStream stream, const Backward *b, int c, const Step &step, bool *done);
