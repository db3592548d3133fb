/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The file of a trace, as JSON in the Trace Event Format. Rank 0 writes it. Internal to
  report/trace.c.
*/
#pragma once

#include "core/trace.h"
#include "io/output.h"

/* The most rows of one thread's overlapping exchanges. */
enum { TRS_TRACE_LANES = 64 };

/*
  Assign each exchange to the first row on which it overlaps with no other: row += lane. span [n] is
  sorted by row, then start. Returns the number of exchanges left out, which get row -1.
*/
int64_t TrsTraceLanes(int64_t n, TrsTraceSpan *span);

/*
  TrsTraceFileWrite - Write all ranks' spans into one file, which appears complete or not at all.

  Collective on comm.

  InOut:  output    the file's place, used on rank 0 only
  In:     span [n] this rank's spans, on rank 0's clock, with lanes; spans with row -1 are left out
          zero_s    the time that becomes 0 in the file, equal on all ranks
          n_lost    number of spans that this rank dropped
  Out:    n_all     number of spans in the file, on rank 0
  Errors: CANT_CREATE, IO
*/
PetscErrorCode TrsTraceFileWrite(MPI_Comm comm, TrsOutput *output, int64_t n, const TrsTraceSpan *span,
                                 double zero_s, int64_t n_lost, int64_t *n_all);
