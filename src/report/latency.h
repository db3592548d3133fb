/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Latencies of batches. Every rank collects them while a dataset is predicted, and the ranks combine
  them at the end.
*/
#pragma once

#include "core/buffer.h"
#include "io/results.h"

typedef struct {
  int64_t n;             /* number of batches */
  TrsBuffer times;       /* double [n] in seconds */
  TrsBuffer sizes;       /* int64 [n] samples over all ranks */
  double start_s, end_s; /* clock at the first batch's start and the last batch's end */
} TrsLatency;

/* Add a batch that has just ended. Not collective. Errors: MEMORY. */
PetscErrorCode TrsLatencyAdd(TrsLatency *latency, int64_t samples, double seconds);

/*
  TrsLatencyReport - Print throughput, p50, p90, p99 and the worst latency, and record /predict/...
    (input/FORMAT.md).

  Collective on comm. A batch's latency is the latency of its slowest rank. Percentiles use the
  nearest-rank definition: the smallest latency that p percent of the batches do not exceed.
  Throughput is measured from the first batch's start to the last batch's end and includes reading.
*/
PetscErrorCode TrsLatencyReport(MPI_Comm comm, TrsLatency *latency, TrsResults results);
PetscErrorCode TrsLatencyFree(TrsLatency *latency);
