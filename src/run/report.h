/* SPDX-License-Identifier: BSD-3-Clause */
/*
  This module prints everything that a run of a model prints (on rank 0), and stores part of it as
  attributes of the results.
*/
#pragma once

#include "core/events.h"
#include "io/results.h"
#include "run/session.h"
#include "train/metrics.h"
#include "train/pipeline.h"
#include "train/running_metrics.h"

/*
  Print the banner: version, ranks, hosts, device, threads, libraries,
  dataset, plan, model, memory. Collective.
*/
PetscErrorCode TrsReportBanner(const TrsSession *session);

/*
  Store the facts of the banner as root attributes:
  options, plan, world_size, hardware, libraries. Collective.
*/
PetscErrorCode TrsReportAttributes(const TrsSession *session, TrsResults results);

/*
  Steps after which every buffer has seen its largest batch, or nearly so, and the tables' states
  have their memory. Allocations are counted after these steps, and so are the times in /stages.
*/
enum { TRS_WARM_UP_STEPS = 8 };

/* Progress lines: one every -report_interval seconds, and one for the first and the last step. */
typedef struct {
  MPI_Comm comm;
  double interval_s;
  PetscBool dated;  /* the time in a line has its date, too: the line is kept */
  PetscBool paused; /* the reader of standard output did not take the last line */
  int64_t total_steps, per_epoch, first_step;
  double start_s, line_s;         /* clock at the first step and at the last line */
  int64_t steps;                  /* steps of this run */
  double warm_up_s[TRS_N_STAGES]; /* the stages' times at the end of the warm-up */
  int64_t samples, line_samples;  /* samples since the start and since the last line */
  double line_loss;
  double line_ids, line_bad_ids;
  PetscBool many_bad_ids; /* some batch had more than 1 % of bad ids */
  int64_t line_steps;
  double ne, auc; /* values of the window when metrics were last computed; NaN before */
} TrsProgress;

PetscErrorCode TrsProgressStart(const TrsSession *session, int64_t total_steps, int64_t per_epoch,
                                int64_t first_step, TrsProgress *progress);
PetscErrorCode TrsProgressStep(TrsProgress *progress, const TrsStepResult *result);

/*
  Print the repairs of the bounds check under mode warning so far, as one warning for each table on
  stderr: the count and the first bad id in the file's order among those that the ranks met first.
  One more has the numbers that -data_check warning let pass. `what` is "train" or another pass.
  Collective.
*/
PetscErrorCode TrsReportBadInput(const TrsSession *session, const TrsDatasetInfo *info, TrsReader reader,
                                 const char *what);

/* What a message about numbers that are not finite adds if nobody looked for such in the data. */
PetscErrorCode TrsReportUnchecked(const TrsSession *session, const char **words);

/* Print a warning on stderr if a step let bad ids or numbers of the dataset pass. Rank 0 prints. */
PetscErrorCode TrsReportBadData(const TrsSession *session, const TrsDatasetInfo *info,
                                const TrsStepResult *result);

/* Keep the training's metrics for the next progress line. */
void TrsProgressMetrics(TrsProgress *progress, const TrsRunningValues *values);

/*
  Print the training's metrics at its end in two lines, window and lifetime. Logically collective.
*/
PetscErrorCode TrsReportRunningMetrics(MPI_Comm comm, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values);

/* Print the line of an evaluation. Logically collective. */
PetscErrorCode TrsReportMetrics(MPI_Comm comm, const char *what, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values);

/*
  TrsReportSummary - Report the end of a training: samples/s, share of each stage, peak memory.

  Collective. The shares are means over ranks. The results get a row for each rank, with times for
  each step: /stages/predicted_ms of the plan's cost model beside /stages/measured_ms (attribute
  stage_names), without the warm-up if there are steps after it, and /memory/predicted_bytes beside
  /memory/measured_bytes.
*/
PetscErrorCode TrsReportSummary(const TrsSession *session, const TrsProgress *progress, TrsResults results);

/* Seconds of a monotonic clock. */
double TrsReportClock(void);
