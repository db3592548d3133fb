/* SPDX-License-Identifier: BSD-3-Clause */
/* The progress lines of a training, and the counts of its steps. */
#pragma once

#include "core/events.h"
#include "session/session.h"
#include "train/metrics/running_metrics.h"
#include "train/pipeline.h"

/*
  Number of steps after which every buffer has (nearly) its final size, and the tables' states have
  their memory. Allocations, and the times in /stages, are counted after these steps.
*/
enum { TRS_WARM_UP_STEPS = 8 };

/*
  Lines, results and pictures use the same definition of samples/s: samples of all ranks, divided by
  rank 0's time in the steps that trained on them. Evaluations and checkpoints do not count.

  A progress line is printed every -report_interval seconds, and for the first and the last step.
*/
typedef struct {
  MPI_Comm comm;
  double interval_s;
  PetscBool dated;  /* lines also show the date, because they are kept */
  PetscBool paused; /* the reader of standard output was not ready for the last line */
  /* The reader's steps. Lines print weight updates instead: a reader's step plus shift. */
  int64_t total_steps, per_epoch, first_step, shift;
  double start_s, line_s;         /* clock at the first step and at the last line */
  double steps_s, line_steps_s;   /* time spent in steps since the start and since the last line */
  int64_t steps;                  /* steps of this run */
  double warm_up_s[TRS_N_STAGES]; /* stage times at the end of the warm-up */
  int64_t samples, line_samples;  /* samples since the start and since the last line */
  double line_loss;
  double line_ids, line_bad_ids;
  PetscBool many_bad_ids; /* true if any batch had more than 1 % bad ids */
  int64_t line_steps;
  double ne, auc;      /* window values when metrics were last computed; NaN before */
  PetscBool one_class; /* the window had one class: its NE and AUC mean nothing */
} TrsProgress;

PetscErrorCode TrsProgressStart(const TrsSession *session, int64_t total_steps, int64_t per_epoch,
                                int64_t first_step, int64_t shift, TrsProgress *progress);
/* Add a step that took `seconds`, and print a line if it is due. */
PetscErrorCode TrsProgressStep(TrsProgress *progress, const TrsStepResult *result, double seconds);
/* Samples/s of the steps since this start; 0 before the first step. */
double TrsProgressSpeed(const TrsProgress *progress);

/* Store the training's metrics for the next progress line. */
void TrsProgressMetrics(TrsProgress *progress, const TrsRunningValues *values);
