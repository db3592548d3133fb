/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/latency.h"

#include "core/names.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { TRS_N_PERCENTILES = 4 };
static const double percentiles[TRS_N_PERCENTILES] = {50, 90, 99, 100};

PetscErrorCode TrsLatencyAdd(TrsLatency *latency, int64_t samples, double seconds)
{
  const int64_t n = latency->n;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&latency->times, (n + 1) * (int64_t)sizeof(double), PETSC_TRUE));
  PetscCall(TrsBufferReserve(&latency->sizes, (n + 1) * (int64_t)sizeof(int64_t), PETSC_TRUE));
  ((double *)latency->times.data)[n] = seconds;
  ((int64_t *)latency->sizes.data)[n] = samples;
  latency->end_s = MPI_Wtime();
  if (n == 0) latency->start_s = latency->end_s - seconds;
  latency->n++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static PetscErrorCode record(const TrsLatency *latency, const double *ms, const double *of_percentile,
                             double samples_per_s, TrsResults results)
{
  PetscFunctionBegin;
  for (int64_t i = 0; i < latency->n; i++) {
    PetscCall(TrsResultsAppend(results, "predict/latency_ms", ms[i]));
    PetscCall(TrsResultsAppendInt(results, "predict/samples", ((const int64_t *)latency->sizes.data)[i]));
  }
  PetscCall(TrsResultsSetArray(results, "predict/percentiles", TRS_N_PERCENTILES, 0, percentiles));
  PetscCall(
      TrsResultsSetArray(results, "predict/latency_percentiles_ms", TRS_N_PERCENTILES, 0, of_percentile));
  PetscCall(TrsResultsSetArray(results, "predict/samples_per_s", 1, 0, &samples_per_s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLatencyReport(MPI_Comm comm, TrsLatency *latency, TrsResults results)
{
  double elapsed_s = latency->n ? latency->end_s - latency->start_s : 0.0, at[TRS_N_PERCENTILES] = {0},
         samples_per_s, *ms, *sorted;
  int64_t samples = 0, skipped = latency->n > 1, n = latency->n - skipped;

  PetscFunctionBegin;
  PetscCheck(latency->n <= INT_MAX, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "too many batches for one message");
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &elapsed_s, 1, MPI_DOUBLE, MPI_MAX, comm));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, latency->times.data, (int)latency->n, MPI_DOUBLE, MPI_MAX, comm));
  PetscCall(PetscMalloc2((size_t)latency->n + 1, &ms, (size_t)latency->n + 1, &sorted));
  for (int64_t i = 0; i < latency->n; i++) {
    ms[i] = 1e3 * ((const double *)latency->times.data)[i];
    samples += ((const int64_t *)latency->sizes.data)[i];
  }
  /* Skip the first batch, because it initialises libraries. If there is only one batch, use it. */
  PetscCall(PetscArraycpy(sorted, ms + skipped, (size_t)n));
  qsort(sorted, (size_t)n, sizeof(*sorted), ascending);
  for (int p = 0; p < TRS_N_PERCENTILES && n; p++)
    at[p] = sorted[PetscMax((int64_t)ceil(percentiles[p] / 100.0 * (double)n) - 1, 0)];
  samples_per_s = (double)samples / PetscMax(elapsed_s, 1e-9);
  PetscCall(record(latency, ms, at, samples_per_s, results));
  PetscCall(PetscPrintf(comm,
                        "predicted  %" PRId64 " sample%s in %.2f s: %.0f samples/s; latency of %" PRId64
                        " batch%s%s p50 %.3f ms, p90 %.3f ms, p99 %.3f ms, worst %.3f ms\n",
                        samples, TrsPlural(samples, "s"), elapsed_s, samples_per_s, n, TrsPlural(n, "es"),
                        skipped ? " after the first" : "", at[0], at[1], at[2], at[3]));
  PetscCall(PetscFree2(ms, sorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLatencyFree(TrsLatency *latency)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferFree(&latency->times));
  PetscCall(TrsBufferFree(&latency->sizes));
  latency->n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
