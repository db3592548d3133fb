/* SPDX-License-Identifier: BSD-3-Clause */
/* Time the bench's measurements, and derive a rate from two times. */
#pragma once

#include "core/error.h"

enum {
  TRS_BENCH_NARROW = 16, /* columns of the narrow and the wide vectors */
  TRS_BENCH_WIDE = 128
};

/* The work to be timed. All ranks do it at the same time. */
typedef struct {
  PetscErrorCode (*prepare)(void *context, int round); /* not timed; NULL: nothing to prepare */
  /* When it returns, the host must have waited for the device. */
  PetscErrorCode (*run)(void *context);
  void *context;
} TrsBenchWork;

/*
  TrsBenchTime - Find the median over rounds of the slowest rank's seconds, because a step waits for
  that rank.

  Collective. There are 7 to 35 rounds: they continue until their middle half is within 5 % of the
  median.

  In-out: spread the rounds' interquartile range over the median; the largest so far is kept
*/
PetscErrorCode TrsBenchTime(MPI_Comm comm, const TrsBenchWork *work, double *median, double *spread);

/*
  TrsBenchAmount - Compute a measurement's amount of work.

  If the tables have less than 64 MiB, which fit into caches anyway, all work is reduced in
  proportion, for a bench that is short and inaccurate.
*/
int64_t TrsBenchAmount(int64_t whole, int64_t table_bytes);

/*
  TrsBenchFit - Fit a line through two points (work, ms). Its results are work/ms, and the overhead,
  expressed as work.

  If the times do not grow, the rate is that of the second point.
*/
void TrsBenchFit(double work0, double ms0, double work1, double ms1, double *rate, double *overhead);
