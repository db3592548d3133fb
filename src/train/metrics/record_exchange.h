/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchange of sample records: each record travels to the rank that owns it. Internal to train/. */
#pragma once

#include "core/buffer.h"
#include "core/error.h"

#include <stdint.h>

/*
  TrsRecordExchange - Send each rank its records.

  Collective on comm.

  In:     bytes   size of a record
          sorted  this rank's records, sorted by their owner
          displs  [size + 1] the start of each owner's records
  Out:    n_mine  number of records that this rank received
  InOut:  mine    the received records, sorted by source; grows as needed
  Errors: MEMORY
*/
PetscErrorCode TrsRecordExchange(MPI_Comm comm, size_t bytes, const void *sorted, const int64_t *displs,
                                 int64_t *n_mine, TrsBuffer *mine);
