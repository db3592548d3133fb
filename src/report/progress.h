/* SPDX-License-Identifier: BSD-3-Clause */
/* The lines of a training's progress, and what its steps have counted. */
#pragma once

#include "core/events.h"
#include "session/session.h"
#include "train/metrics/running_metrics.h"
#include "train/pipeline.h"

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

/* Keep the training's metrics for the next progress line. */
void TrsProgressMetrics(TrsProgress *progress, const TrsRunningValues *values);
