/* SPDX-License-Identifier: BSD-3-Clause */
/* All that a run of a model prints (on rank 0), and what of it is kept as attributes of the results. */
#pragma once

#include "io/results.h"
#include "run/session.h"
#include "train/metrics.h"
#include "train/pipeline.h"
#include "train/running_metrics.h"

/* Banner: version, ranks, hosts, device, threads, libraries, dataset, plan, model, memory. Collective. */
PetscErrorCode TrsReportBanner(const TrsSession *session);

/* The same facts as root attributes: options, plan, world_size, hardware, libraries. Collective. */
PetscErrorCode TrsReportAttributes(const TrsSession *session, TrsResults results);

/* Progress lines: one every -report_interval seconds, and one for the last step. */
typedef struct {
  MPI_Comm comm;
  double interval_s;
  int64_t total_steps, per_epoch, first_step;
  double start_s, line_s;        /* clock at the first step, at the last line */
  int64_t steps;                 /* of this run */
  int64_t samples, line_samples; /* since the start, since the last line */
  double line_loss;
  int64_t line_steps;
  double ne, auc; /* of the window when metrics were last computed; NaN before */
} TrsProgress;

PetscErrorCode TrsProgressStart(const TrsSession *session, int64_t total_steps, int64_t per_epoch,
                                int64_t first_step, TrsProgress *progress);
PetscErrorCode TrsProgressStep(TrsProgress *progress, const TrsStepResult *result);

/*
  What the bounds check has repaired under mode warning so far, a warning a table on stderr: count, and the first one in the file's order of
  those that ranks met first. what: "train", ... Collective.
*/
PetscErrorCode TrsReportBadIds(const TrsSession *session, const TrsDatasetInfo *info, TrsReader reader,
                               const char *what);

/* A warning on stderr, where a step let bad ids or numbers of the dataset pass. Prints on rank 0. */
PetscErrorCode TrsReportBadData(const TrsSession *session, const TrsDatasetInfo *info,
                                const TrsStepResult *result);

/* The training's metrics: kept for the next progress line. */
void TrsProgressMetrics(TrsProgress *progress, const TrsRunningValues *values);

/* The training's metrics at its end: two lines, window and lifetime. Logically collective. */
PetscErrorCode TrsReportRunningMetrics(MPI_Comm comm, const TrsRunningValues *values);

/* Evaluation's line. Logically collective. */
PetscErrorCode TrsReportMetrics(MPI_Comm comm, const char *what, const TrsMetricValues *values);

/*
  End of a training: samples/s, share of each stage (mean over ranks), peak memory. To the results, a row a rank: /stages/predicted_ms of the plan's
  cost model beside /stages/measured_ms (attribute stage_names), per step; /memory/predicted_bytes beside /memory/measured_bytes. Collective.
*/
PetscErrorCode TrsReportSummary(const TrsSession *session, const TrsProgress *progress, TrsResults results);

/* "1.5 GiB" into text [size]; returns text. */
const char *TrsReportBytesText(double bytes, char *text, size_t size);

/* Seconds of a monotonic clock. */
double TrsReportClock(void);
