/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Clocks of ranks, brought to rank 0's: by messages to and fro, at two moments; between them the difference is a straight line.

  A reading lies somewhere between a question and its answer: the quickest of TRS_CLOCK_ROUNDS is taken, and its middle, so the error is at most half its
  time. Rank 0 asks one rank after the other: time grows with their number (some 0.1 ms each).
*/
#pragma once

#include "core/error.h"

enum { TRS_CLOCK_ROUNDS = 32 };

typedef struct {
  double at_s;     /* this rank's clock when it was compared */
  double offset_s; /* this rank's clock minus rank 0's */
} TrsClockOffset;

/* Of n rounds the quickest: rank 0 asked at sent_s, the other's clock was read_s, rank 0 had it at received_s. */
TrsClockOffset TrsClockBest(int n, const double *sent_s, const double *read_s, const double *received_s);

/* Compare with rank 0's clock. Collective on comm. */
PetscErrorCode TrsClockMeasure(MPI_Comm comm, TrsClockOffset *offset);

/*
  A time of this rank's clock as rank 0's clock shows it; later times stay later. Before first and after last their own offset holds. Where they
  differ by more than clocks drift (1e-3 of the time between them) the comparisons were that far off, and the middle of both holds throughout.
*/
double TrsClockToRank0(const TrsClockOffset *first, const TrsClockOffset *last, double time_s);
