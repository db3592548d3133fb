/* SPDX-License-Identifier: BSD-3-Clause */
/* Times the bench's measurements, and computes a rate from two times. */
#pragma once

#include "core/error.h"

enum {
  TRS_BENCH_NARROW = 16, /* number of columns of the narrow and of the wide vectors */
  TRS_BENCH_WIDE = 128
};

/* The work that is timed. All ranks do it at the same time. */
typedef struct {
  /* is not timed; NULL: there is nothing to prepare */
  PetscErrorCode (*prepare)(void *context, int round);
  /* Must wait for the device before it returns. */
  PetscErrorCode (*run)(void *context);
  void *context;
} TrsBenchWork;

/*
  TrsBenchTime - Find the median over rounds of the slowest rank's seconds. The slowest rank counts,
    because a step waits for it.

  Collective. There are 7 to 35 rounds. They end when their interquartile range is below 5 % of the
  median.

  In-out: spread  the rounds' interquartile range divided by the median; the largest value so far is
                  kept
*/
PetscErrorCode TrsBenchTime(MPI_Comm comm, const TrsBenchWork *work, double *median, double *spread);

/*
  TrsBenchAmount - Compute the amount of work of a measurement.

  If the tables have less than 64 MiB, they fit into caches. Then all work is reduced in proportion,
  and the bench is short but inaccurate.
*/
int64_t TrsBenchAmount(int64_t whole, int64_t table_bytes);

/*
  TrsBenchFit - Fit a line through two points (work, ms). The results are the rate in work/ms, and
    the overhead as the amount of work that takes the same time.

  If the times do not grow, the rate is that of the second point alone.
*/
void TrsBenchFit(double work0, double ms0, double work1, double ms1, double *rate, double *overhead);
