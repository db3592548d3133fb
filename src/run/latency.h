/* SPDX-License-Identifier: BSD-3-Clause */
/* How long batches take: collected on every rank while a dataset is predicted, summed up over ranks at the end. */
#pragma once

#include "core/buffer.h"
#include "io/results.h"

typedef struct {
  int64_t n;             /* batches */
  TrsBuffer times;       /* double [n]: seconds */
  TrsBuffer sizes;       /* int64 [n]: samples of all ranks */
  double start_s, end_s; /* clock of the first batch's start, of the last one's end */
} TrsLatency;

/* One more batch, which ended just now. Not collective. Errors: MEMORY */
PetscErrorCode TrsLatencyAdd(TrsLatency *latency, int64_t samples, double seconds);

/*
  TrsLatencyReport - A batch's latency is that of its slowest rank. Prints throughput, p50, p90, p99 and the worst, and records /predict/... (input/FORMAT.md).

  Collective on comm. Percentiles are of the nearest rank: the smallest latency that p percent of the batches do not exceed. Throughput is from the first batch's
  start to the last one's end, reading included.
*/
PetscErrorCode TrsLatencyReport(MPI_Comm comm, TrsLatency *latency, TrsResults results);
PetscErrorCode TrsLatencyFree(TrsLatency *latency);
