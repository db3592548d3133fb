/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Conversion of all ranks' times to rank 0's clock. Each rank compares its clock with rank 0's clock
  at two moments, by messages. For times between these moments, the difference of the clocks is
  interpolated linearly.

  To compare, rank 0 sends a question, and the rank answers with the time of its clock. It reads the
  clock at some time between question and answer; the middle is assumed. Only the fastest of
  TRS_CLOCK_ROUNDS rounds is used, so the error is at most half the duration of this round. Rank 0
  asks one rank after another, so the time grows with the number of ranks (some 0.1 ms for each).
*/
#pragma once

#include "core/error.h"

enum { TRS_CLOCK_ROUNDS = 32 };

typedef struct {
  double at_s;     /* time of this rank's clock at the comparison */
  double offset_s; /* this rank's clock minus rank 0's clock */
} TrsClockOffset;

/*
  Choose the fastest of n rounds. In round i, rank 0 asks at sent_s[i], the other rank reads its
  clock as read_s[i], and rank 0 receives the answer at received_s[i].
*/
TrsClockOffset TrsClockBest(int n, const double *sent_s, const double *read_s, const double *received_s);

/* Compare this rank's clock with rank 0's clock. Collective on comm. */
PetscErrorCode TrsClockMeasure(MPI_Comm comm, TrsClockOffset *offset);

/*
  Convert a time of this rank's clock to rank 0's clock. The order of times is kept. Before `first`
  and after `last`, the offset of the nearer comparison is used. If the two offsets differ by more
  than clocks can drift (1e-3 of the time between them), the comparisons were inaccurate, and the
  mean of both offsets is used for all times.
*/
double TrsClockToRank0(const TrsClockOffset *first, const TrsClockOffset *last, double time_s);
