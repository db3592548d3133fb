/* SPDX-License-Identifier: BSD-3-Clause */
/* The progress lines of a training, and the counts of its steps. */
#pragma once

#include "core/events.h"
#include "session/session.h"
#include "train/metrics/running_metrics.h"
#include "train/pipeline.h"

/*
  After this number of steps, every buffer has (nearly) its final size, and the tables' states are
  allocated. The number of allocations and the times in /stages are counted from then on.
*/
enum { TRS_WARM_UP_STEPS = 8 };

enum { TRS_PROGRESS_WHERE = 320 }; /* space for the place in a stream */

/*
  Lines, results and pictures use the same definition of samples/s: the samples of all ranks,
  divided by rank 0's time in the steps that trained on these samples. Evaluations and checkpoints
  do not count.

  A progress line is printed every -report_interval seconds, and for the first and the last step.
*/
typedef struct {
  MPI_Comm comm;
  double interval_s;
  PetscBool dated;  /* true: lines also show the date, because the output is kept in a file */
  PetscBool paused; /* true: the reader of standard output was not ready for the last line */
  /* The steps of the reader. Lines print the number of weight updates instead, which is a
     reader's step plus shift. */
  int64_t total_steps, per_epoch, first_step, shift;
  /* The place in a stream, printed instead of the epoch; "" if the training reads no stream. */
  char where[TRS_PROGRESS_WHERE];
  double start_s, line_s;         /* clock at the first step and at the last line */
  double steps_s, line_steps_s;   /* seconds in steps since the start, and since the last line */
  int64_t steps;                  /* number of steps of this run */
  double warm_up_s[TRS_N_STAGES]; /* the stages' times at the end of the warm-up */
  int64_t samples, line_samples;  /* number of samples since the start, and since the last line */
  double line_loss;
  double line_ids, line_bad_ids;
  PetscBool many_bad_ids; /* true: a batch had more than 1 % bad ids */
  int64_t line_steps;
  double ne, auc; /* values of the window when metrics were last computed; NaN before that */
  /* true: the window had labels of only one class, so its NE and AUC are meaningless */
  PetscBool one_class;
} TrsProgress;

PetscErrorCode TrsProgressStart(const TrsSession *session, int64_t total_steps, int64_t per_epoch,
                                int64_t first_step, int64_t shift, TrsProgress *progress);
/* Add a step that took `seconds`, and print a progress line if it is due. */
PetscErrorCode TrsProgressStep(TrsProgress *progress, const TrsStepResult *result, double seconds);
/* Samples/s over the steps since this start. 0 before the first step. */
double TrsProgressSpeed(const TrsProgress *progress);

/* Store the training's metrics for the next progress line. */
void TrsProgressMetrics(TrsProgress *progress, const TrsRunningValues *values);

/* Set the place in a stream: after this number of samples from this file. Not collective. */
void TrsProgressWhere(TrsProgress *progress, int64_t sample, const char *file);

/* True if the time for a progress line has come. Not collective. */
PetscBool TrsProgressIsDue(const TrsProgress *progress);

/* Print a progress line that has a state and a text instead of a step. Logically collective. */
PetscErrorCode TrsProgressLine(TrsProgress *progress, const char *state, const char *about);
