/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Early stopping ends a training if an evaluation metric has not improved in a given number of
  evaluations. This module also remembers the best evaluation.

  The struct is plain data. All ranks hold the same values, because evaluations give every rank the
  same metrics. Nothing here is collective.
*/
#pragma once

#include "core/options/options.h"
#include "io/checkpoint/checkpoint.h"
#include "train/metrics/task_metrics.h"

enum { TRS_EARLY_STOPPING_NUMBERS = 5 }; /* count of early stopping's numbers in a checkpoint */

typedef struct {
  /* true: -early_stopping_metric was given. Otherwise only the loss is watched, to find the best
     checkpoint. */
  PetscBool stops;
  PetscBool keeps; /* true: -checkpoint_best was given */
  PetscBool told;  /* true: a warning has reported that the metric was not a number */
  int metric;      /* index into the option's choices */
  /* Index of the task whose metric is watched. -1: the loss of all tasks is watched, with their
     weights. */
  int task;
  const char *task_name; /* NULL if there is only one task */
  int64_t patience;
  double min_delta;
  PetscBool has_best;
  double best;
  int64_t best_step; /* number of updates before the best evaluation */
  int64_t n_worse;   /* number of evaluations since the best one whose metric was a number */
  double kept[TRS_EARLY_STOPPING_NUMBERS];
} TrsEarlyStopping;

extern const TrsOptionGroup trs_early_stopping_options;

/*
  Read the options of early stopping. Errors: OPTION for a patience or min_delta without a metric,
  or for a metric that the task lacks.
*/
PetscErrorCode TrsEarlyStoppingFromOptions(TrsOptions options, TrsEarlyStopping *early);

/*
  Find the task that -early_stopping_task names. Without this option it is the first task. Without a
  metric, or for the loss, all tasks count. Errors: OPTION for an unknown task, or for a task that
  lacks the metric.
*/
PetscErrorCode TrsEarlyStoppingFindTask(TrsOptions options, const TrsTaskConfigs *tasks,
                                        TrsEarlyStopping *early);

/*
  Add the values [tasks] of an evaluation that was made after `step` updates.

  A metric that is not a number counts neither as better nor as worse. This is a metric that is not
  finite, or is computed from labels of one class (TrsMetricsKeepMeasured()). The first such
  evaluation causes a warning on rank 0 of comm.

  Out: keep  true: the weights are the best so far. This is the case if the evaluation is the first
             with a number, if it is better than all earlier ones by more than min_delta, or if no
             evaluation has had a number yet
  Errors: DATA if no sample has a label of the task whose metric is watched
*/
PetscErrorCode TrsEarlyStoppingAdd(TrsEarlyStopping *early, MPI_Comm comm, int64_t step,
                                   const TrsTaskConfigs *tasks, const TrsMetricValues *values,
                                   PetscBool *keep);

/* True if the training must stop, because there were too many evaluations without improvement. */
PetscBool TrsEarlyStoppingIsOver(const TrsEarlyStopping *early);

/*
  Write a text such as "eval/auc has not risen above 0.7123 (after 300 updates) by more than 0.001
  in 3 evaluations".
*/
void TrsEarlyStoppingText(const TrsEarlyStopping *early, char *text, size_t size);

/*
  Save returns the numbers for a checkpoint, borrowed until the next call. Load restores them.
  `path` is the checkpoint's path, for messages. If the numbers belong to another metric, Load sets
  *same to false and changes nothing else. Errors: DATA.
*/
TrsCheckpointNumbers TrsEarlyStoppingSave(TrsEarlyStopping *early);
PetscErrorCode TrsEarlyStoppingLoad(TrsEarlyStopping *early, const char *path,
                                    const TrsCheckpointNumbers *numbers, PetscBool *same);
