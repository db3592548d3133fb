/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's counters, and their text for Prometheus. Any thread may count. */
#pragma once

#include "serve/answer_text.h"

#include <stdatomic.h>
#include <stdint.h>

enum {
  TRS_SERVE_STATUSES = 7, /* number of HTTP statuses that are counted */
  TRS_SERVE_BOUNDS = 16   /* number of upper bounds of the histogram of latencies */
};

typedef struct {
  _Atomic int64_t requests[TRS_SERVE_STATUSES]; /* prediction requests by their status */
  _Atomic int64_t samples, ids, batches;        /* of predictions that succeeded */
  _Atomic int64_t bucket[TRS_SERVE_BOUNDS + 1]; /* latencies of requests with status 200 */
  _Atomic int64_t latency_ns;                   /* sum of these latencies */
  _Atomic int64_t connections;                  /* open now */
  _Atomic int64_t body_bytes;                   /* bytes of request bodies held now */
  _Atomic int64_t changes, failed_changes;      /* models that replaced another; that could not */
  _Atomic int64_t deltas, refused_deltas;       /* deltas that were applied; that were refused */
  /* of the last delta, in ns: time to apply it, and time from its writing until answers used it */
  _Atomic int64_t delta_ns, delta_lag_ns;
  _Atomic int64_t written_ns; /* when the file of the weights was written, since 1970; 0: unknown */
  /*
    Number of updates of the model. It is set after the counters of what changed the model, so a
    reader of a new step also finds the new counters.
  */
  _Atomic int64_t step;
} TrsServeMetrics;

/* Values of the metrics text that other parts of the server have. */
typedef struct {
  int64_t queue;
  int ready;
  int32_t n_features;
  char **feature;               /* [n_features] names */
  const int64_t *ids, *unknown; /* [n_features] ids, and ids without a row */
} TrsServeGauges;

/* Return the time since 1970 in ns. */
int64_t TrsServeNow(void);

/* Count a prediction request that was answered with `status` after `seconds`. */
void TrsServeMetricsAdd(TrsServeMetrics *metrics, int status, double seconds);

/* Append the metrics in Prometheus' text format 0.0.4. */
void TrsServeMetricsText(const TrsServeMetrics *metrics, const TrsServeGauges *gauges, TrsServeText *text);
