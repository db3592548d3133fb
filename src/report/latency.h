/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The latencies of batches. While a dataset is predicted, every rank collects the latencies. At the
  end the ranks combine them.
*/
#pragma once

#include "core/buffer.h"
#include "io/results.h"

typedef struct {
  int64_t n;       /* number of batches */
  TrsBuffer times; /* double [n] latencies in seconds */
  TrsBuffer sizes; /* int64 [n] number of samples over all ranks */
  /* clock at the start of the first batch and at the end of the last batch */
  double start_s, end_s;
} TrsLatency;

/*
  Add a batch that has just ended. `samples` is its number of samples over all ranks. Not
  collective. Errors: MEMORY.
*/
PetscErrorCode TrsLatencyAdd(TrsLatency *latency, int64_t samples, double seconds);

/*
  TrsLatencyReport - Print throughput, p50, p90, p99 and the worst latency, and record them as
    /predict/... (input/FORMAT.md).

  Collective on comm. A batch's latency is the latency of its slowest rank. Percentiles use the
  nearest-rank definition: the smallest latency that p percent of the batches do not exceed.
  Throughput is measured from the first batch's start to the last batch's end and includes reading.
*/
PetscErrorCode TrsLatencyReport(MPI_Comm comm, TrsLatency *latency, TrsResults results);
PetscErrorCode TrsLatencyFree(TrsLatency *latency);
