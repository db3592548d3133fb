/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Upper bounds of latencies in seconds. */
static const double bounds[TRS_SERVE_BOUNDS] = {1e-4, 2e-4, 3e-4, 5e-4, 7e-4, 1e-3, 2e-3, 3e-3,
                                                5e-3, 1e-2, 2e-2, 5e-2, 0.1,  0.25, 1.0,  2.5};

static const int statuses[TRS_SERVE_STATUSES] = {200, 400, 404, 405, 413, 500, 503};

int64_t TrsServeNow(void)
{
  struct timespec now;

  (void)clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void TrsServeMetricsAdd(TrsServeMetrics *m, int status, double seconds)
{
  int b = 0;

  for (int i = 0; i < TRS_SERVE_STATUSES; i++)
    if (statuses[i] == status) atomic_fetch_add(&m->requests[i], 1);
  if (status != 200) return;
  while (b < TRS_SERVE_BOUNDS && seconds > bounds[b]) b++;
  atomic_fetch_add(&m->bucket[b], 1);
  atomic_fetch_add(&m->latency_ns, (int64_t)(1e9 * seconds));
}

/*
  Return the process's resident memory, and the part of it that is not pages of files. Both are 0 if
  the system does not provide them.
*/
static int64_t resident_bytes(int64_t *own)
{
  FILE *file = fopen("/proc/self/statm", "re");
  char line[128] = "", *next = line;
  int64_t pages[3] = {0}; /* size, resident, of files */

  *own = 0;
  if (!file) return 0;
  if (fgets(line, sizeof(line), file))
    for (int i = 0; i < 3; i++) pages[i] = strtoll(next, &next, 10);
  (void)fclose(file);
  *own = (pages[1] - pages[2]) * sysconf(_SC_PAGESIZE);
  return pages[1] * sysconf(_SC_PAGESIZE);
}

static void add(TrsServeText *text, const char *name, const char *type, const char *help, int64_t value)
{
  TrsServeTextPrint(text, "# HELP trshard_%s %s\n# TYPE trshard_%s %s\ntrshard_%s %" PRId64 "\n", name, help,
                    name, type, name, value);
}

/* Add a gauge of seconds. */
static void add_seconds(TrsServeText *text, const char *name, const char *help, double seconds)
{
  TrsServeTextPrint(text, "# HELP trshard_%s %s\n# TYPE trshard_%s gauge\ntrshard_%s %.6f\n", name, help,
                    name, name, seconds);
}

/* Add a counter of each sparse feature. Names of features may have any characters. */
static void add_of_features(TrsServeText *text, const char *name, const char *help,
                            const TrsServeGauges *gauges, const int64_t *counts)
{
  TrsServeTextPrint(text, "# HELP trshard_%s %s\n# TYPE trshard_%s counter\n", name, help, name);
  for (int32_t f = 0; f < gauges->n_features; f++) {
    TrsServeTextPrint(text, "trshard_%s{feature=\"", name);
    for (const char *c = gauges->feature[f]; *c; c++) {
      if (*c == '\n' || *c == '"' || *c == '\\') TrsServeTextPrint(text, "\\");
      TrsServeTextPrint(text, "%c", *c == '\n' ? 'n' : *c);
    }
    TrsServeTextPrint(text, "\"} %" PRId64 "\n", counts[f]);
  }
}

static void add_latencies(const TrsServeMetrics *m, TrsServeText *text)
{
  static const char name[] = "trshard_request_seconds";
  int64_t sum = 0;

  TrsServeTextPrint(
      text, "# HELP %s Time from the end of a request's headers to its answer.\n# TYPE %s histogram\n", name,
      name);
  for (int b = 0; b < TRS_SERVE_BOUNDS; b++) {
    sum += atomic_load(&m->bucket[b]);
    TrsServeTextPrint(text, "%s_bucket{le=\"%g\"} %" PRId64 "\n", name, bounds[b], sum);
  }
  sum += atomic_load(&m->bucket[TRS_SERVE_BOUNDS]);
  TrsServeTextPrint(text, "%s_bucket{le=\"+Inf\"} %" PRId64 "\n%s_sum %.9f\n%s_count %" PRId64 "\n", name,
                    sum, name, 1e-9 * (double)atomic_load(&m->latency_ns), name, sum);
}

void TrsServeMetricsText(const TrsServeMetrics *m, const TrsServeGauges *gauges, TrsServeText *text)
{
  int64_t own;

  TrsServeTextPrint(text, "# HELP trshard_requests_total Prediction requests by the status of their answer.\n"
                          "# TYPE trshard_requests_total counter\n");
  for (int i = 0; i < TRS_SERVE_STATUSES; i++)
    TrsServeTextPrint(text, "trshard_requests_total{code=\"%d\"} %" PRId64 "\n", statuses[i],
                      atomic_load(&m->requests[i]));
  add(text, "samples_total", "counter", "Samples that were predicted.", atomic_load(&m->samples));
  add(text, "ids_total", "counter", "Ids of these samples.", atomic_load(&m->ids));
  add(text, "batches_total", "counter", "Batches in which the samples were predicted.",
      atomic_load(&m->batches));
  add_latencies(m, text);
  add(text, "requests_in_progress", "gauge", "Requests that wait or are predicted.", gauges->queue);
  add(text, "connections", "gauge", "Open connections.", atomic_load(&m->connections));
  add(text, "body_bytes", "gauge", "Bytes of request bodies in memory.", atomic_load(&m->body_bytes));
  add(text, "ready", "gauge", "1 if the server takes requests.", gauges->ready);
  add(text, "model_step", "gauge", "Number of updates of the model.", atomic_load(&m->step));
  add(text, "model_changes_total", "counter", "Models that replaced another model.",
      atomic_load(&m->changes));
  add(text, "model_failed_changes_total", "counter", "Files that could not replace the model.",
      atomic_load(&m->failed_changes));
  add(text, "deltas_applied_total", "counter", "Deltas that have changed the model.",
      atomic_load(&m->deltas));
  add(text, "deltas_refused_total", "counter", "Deltas that could not be applied to the model.",
      atomic_load(&m->refused_deltas));
  add_seconds(text, "delta_seconds", "Time that the last delta took to apply.",
              1e-9 * (double)atomic_load(&m->delta_ns));
  add_seconds(text, "delta_lag_seconds", "Time from the writing of the last delta until answers used it.",
              1e-9 * (double)atomic_load(&m->delta_lag_ns));
  add_seconds(text, "model_age_seconds", "Time since the file of the model's weights was written.",
              1e-9 * (double)(TrsServeNow() - atomic_load(&m->written_ns)));
  add_of_features(text, "feature_ids_total", "Ids of each sparse feature.", gauges, gauges->ids);
  add_of_features(text, "unknown_ids_total", "Ids of each sparse feature that the model does not know.",
                  gauges, gauges->unknown);
  add(text, "resident_memory_bytes", "gauge", "Resident memory of the process.", resident_bytes(&own));
  add(text, "own_memory_bytes", "gauge", "Resident memory that is not pages of files.", own);
}
