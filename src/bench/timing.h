/* SPDX-License-Identifier: BSD-3-Clause */
/* How a measurement of the bench is timed, and how a rate comes from two times. */
#pragma once

#include "core/error.h"

enum {
  TRS_BENCH_NARROW = 16, /* columns of vectors that are measured beside each other */
  TRS_BENCH_WIDE = 128
};

/* What is timed. All ranks do the same at once. */
typedef struct {
  PetscErrorCode (*prepare)(void *context, int round); /* not timed; NULL: nothing is to do */
  /* The host has waited for the device when it returns. */
  PetscErrorCode (*run)(void *context);
  void *context;
} TrsBenchWork;

/*
  TrsBenchTime - Find the median over rounds of the slowest rank's seconds, for which a step waits.

  Collective. There are 7 to 35 rounds: they go on until the middle half of them is within 5 % of
  the median.

  In-out: spread  the distance of the rounds' quarters over the median; the largest so far is kept
*/
PetscErrorCode TrsBenchTime(MPI_Comm comm, const TrsBenchWork *work, double *median, double *spread);

/*
  TrsBenchAmount - The amount of work of a measurement.

  With tables of less than 64 MiB, which fit caches anyway, all work is as much less, for a bench
  that is short and says little.
*/
int64_t TrsBenchAmount(int64_t whole, int64_t table_bytes);

/*
  TrsBenchFit - The line through two points of (work, ms): work/ms, and the work that stands for the
  time of no work.

  Times that do not grow are those of the second point.
*/
void TrsBenchFit(double work0, double ms0, double work1, double ms1, double *rate, double *overhead);
