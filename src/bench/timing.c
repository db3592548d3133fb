/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/timing.h"

#include "core/clock.h"

#include <stdlib.h>

enum { TRS_BENCH_LEAST_ROUNDS = 7, TRS_BENCH_MOST_ROUNDS = 35 };

/* Rounds are repeated until their interquartile range, divided by their median, is below this. */
static const double close_enough = 0.05;

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

PetscErrorCode TrsBenchTime(MPI_Comm comm, const TrsBenchWork *work, double *median, double *spread)
{
  double seconds[TRS_BENCH_MOST_ROUNDS], sorted[TRS_BENCH_MOST_ROUNDS], apart = 0.0;

  PetscFunctionBegin;
  *median = 0.0;
  /* The first round is not measured. It only touches the memory. */
  for (int round = -1; round < TRS_BENCH_MOST_ROUNDS; round++) {
    double s;

    if (work->prepare) PetscCall(work->prepare(work->context, PetscMax(round, 0)));
    PetscCallMPI(MPI_Barrier(comm));
    s = -TrsClock();
    PetscCall(work->run(work->context));
    s += TrsClock();
    PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &s, 1, MPI_DOUBLE, MPI_MAX, comm));
    if (round < 0) continue;
    seconds[round] = s;
    if (round + 1 < TRS_BENCH_LEAST_ROUNDS) continue;
    for (int i = 0; i <= round; i++) sorted[i] = seconds[i];
    qsort(sorted, (size_t)round + 1, sizeof(*sorted), by_value);
    *median = sorted[round / 2];
    apart = (sorted[round * 3 / 4] - sorted[round / 4]) / *median;
    if (apart < close_enough) break;
  }
  *spread = PetscMax(*spread, apart);
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsBenchAmount(int64_t whole, int64_t table_bytes)
{
  for (; table_bytes < (int64_t)64 << 20; table_bytes *= 2) whole /= 2;
  return whole;
}

void TrsBenchFit(double work0, double ms0, double work1, double ms1, double *rate, double *overhead)
{
  *rate = ms1 > ms0 ? (work1 - work0) / (ms1 - ms0) : work1 / ms1;
  *overhead = PetscMax(ms0 * *rate - work0, 0.0);
}
