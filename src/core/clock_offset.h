/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The times of all ranks are expressed on rank 0's clock. Ranks compare their clocks by messages at
  two moments. Between the two moments the difference is interpolated linearly.

  A clock is read at some time between a question and its answer. The middle of the quickest of
  TRS_CLOCK_ROUNDS rounds is used, so the error is at most half the time of that round. Rank 0 asks
  one rank after the other, so the time grows with the number of ranks (some 0.1 ms each).
*/
#pragma once

#include "core/error.h"

enum { TRS_CLOCK_ROUNDS = 32 };

typedef struct {
  double at_s;     /* this rank's clock when it was compared */
  double offset_s; /* this rank's clock minus rank 0's */
} TrsClockOffset;

/*
  Choose the quickest of n rounds. In a round, rank 0 asks at sent_s, the other rank reads its clock
  as read_s, and rank 0 has the answer at received_s.
*/
TrsClockOffset TrsClockBest(int n, const double *sent_s, const double *read_s, const double *received_s);

/* Compare this rank's clock with rank 0's clock. Collective on comm. */
PetscErrorCode TrsClockMeasure(MPI_Comm comm, TrsClockOffset *offset);

/*
  Convert a time of this rank's clock to rank 0's clock. The order of times is kept. Before `first`
  and after `last` the nearer offset is used. If the two offsets differ by more than clocks drift
  (1e-3 of the time between them), the comparisons themselves were inaccurate, and the mean of both
  offsets is used throughout.
*/
double TrsClockToRank0(const TrsClockOffset *first, const TrsClockOffset *last, double time_s);
