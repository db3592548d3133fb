/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Shared code of this folder's programs: a main, two clocks, and a median. Functions are static,
  because each program is one file.
*/
#pragma once

#include "compute/compute_ops.h"
#include "core/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double bench_clock(clockid_t clock)
{
  struct timespec t;

  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
  Time in seconds. A program with one thread measures processor time, which other programs disturb
  less.
*/
static inline double bench_now(void)
{
  return bench_clock(TrsComputeThreads() > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID);
}

static inline int bench_ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;

  return (x > y) - (x < y);
}

/* The median of n numbers, which are sorted in place. */
static inline double bench_median(int64_t n, double *seconds)
{
  qsort(seconds, (size_t)n, sizeof(*seconds), bench_ascending);
  return seconds[n / 2];
}

/* The body of main(). An error on one rank ends all ranks. */
static inline int bench_main(int argc, char **argv, PetscErrorCode (*run)(int argc, char **argv))
{
  PetscErrorCode ierr;

  if (TrsStart(argc, argv)) return 70;
  ierr = run(argc, argv);
  if (ierr) {
    fprintf(stderr, "%s\n", TrsErrorMessage());
    MPI_Abort(MPI_COMM_WORLD, TrsExitStatus(ierr));
  }
  return TrsStop(PETSC_FALSE) ? 70 : 0;
}
