/* SPDX-License-Identifier: BSD-3-Clause */
/* The update for most tables: rowwise_adagrad on rows that a group of lanes holds at once. */
#pragma once

#include "gpu/tbe/tbe_occurrences_cuda.h"
#include "gpu/tbe/tbe_step_cuda.h"

/*
  Update the rows of class c in a backward call. The pieces of its runs must be summed before. The
  bits equal those of update_kernel (tbe_backward_cuda.cu). Enqueued on the stream.

  Out: done  false: the class is not suitable and nothing was done; the caller must use
             update_kernel
*/
PetscErrorCode TrsCudaUpdateTiles(TrsStream stream, const Backward *b, int c, const Step &step, bool *done);
