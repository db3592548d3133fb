/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The file of a trace, as JSON in the Trace Event Format. Rank 0 writes it. Internal to
  report/trace.c.
*/
#pragma once

#include "core/trace.h"
#include "io/output.h"

/* The largest number of rows that overlapping exchanges of one thread may occupy. */
enum { TRS_TRACE_LANES = 64 };

/*
  Assign each exchange to the first row on which it does not overlap with another exchange: row +=
  lane. `span` [n] must be sorted by row, then by start. Returns the number of exchanges for which
  there is no row. They get row -1.
*/
int64_t TrsTraceLanes(int64_t n, TrsTraceSpan *span);

/*
  TrsTraceFileWrite - Write all ranks' spans into one file. The file appears complete or not at all.

  Collective on comm.

  InOut:  output    the output file, used only on rank 0
  In:     span [n] this rank's spans, on rank 0's clock, after TrsTraceLanes(); spans with row -1
          are left out
          zero_s    the time that becomes 0 in the file, equal on all ranks
          n_lost    number of spans that this rank dropped
  Out:    n_all     number of spans in the file, on rank 0
  Errors: CANT_CREATE, IO
*/
PetscErrorCode TrsTraceFileWrite(MPI_Comm comm, TrsOutput *output, int64_t n, const TrsTraceSpan *span,
                                 double zero_s, int64_t n_lost, int64_t *n_all);
