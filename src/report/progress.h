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

/*
  Samples/s have one definition in lines, in the results and in pictures: samples of all ranks over
  rank 0's time in the steps that trained on them. Evaluations and checkpoints do not count.

  Progress lines: one every -report_interval seconds, and one for the first and the last step.
*/
typedef struct {
  MPI_Comm comm;
  double interval_s;
  PetscBool dated;  /* the time in a line has its date, too: the line is kept */
  PetscBool paused; /* the reader of standard output did not take the last line */
  /* Steps of the reader. Lines print updates of the weights: a reader's step plus shift. */
  int64_t total_steps, per_epoch, first_step, shift;
  double start_s, line_s;         /* clock at the first step and at the last line */
  double steps_s, line_steps_s;   /* time in steps since the start and since the last line */
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
                                int64_t first_step, int64_t shift, TrsProgress *progress);
/* Add a step that took `seconds`, and print a line if it is time for one. */
PetscErrorCode TrsProgressStep(TrsProgress *progress, const TrsStepResult *result, double seconds);
/* Samples/s of this start's steps, 0 before the first. */
double TrsProgressSpeed(const TrsProgress *progress);

/* Keep the training's metrics for the next progress line. */
void TrsProgressMetrics(TrsProgress *progress, const TrsRunningValues *values);
