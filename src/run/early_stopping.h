/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Early stopping ends a training if an evaluation metric has not improved for some evaluations. It
  also remembers the best evaluation.

  The struct is plain data. All ranks hold the same values, because evaluations give every rank the
  same metrics. Nothing here is collective.
*/
#pragma once

#include "core/options/options.h"
#include "io/checkpoint/checkpoint.h"
#include "train/metrics/task_metrics.h"

enum { TRS_EARLY_STOPPING_NUMBERS = 5 }; /* numbers in a checkpoint */

typedef struct {
  /* -early_stopping_metric was given. Otherwise only the loss is watched, for the best checkpoint.
     */
  PetscBool stops;
  int metric; /* index into the option's choices */
  /* The task whose metric is watched; -1: the loss of all tasks by their weights. */
  int task;
  const char *task_name; /* NULL with one task */
  int64_t patience;
  double min_delta;
  PetscBool has_best;
  double best;
  int64_t best_step; /* updates done before the best evaluation */
  int64_t n_worse;   /* evaluations since the best one */
  double kept[TRS_EARLY_STOPPING_NUMBERS];
} TrsEarlyStopping;

extern const TrsOptionGroup trs_early_stopping_options;

/*
  Read the options. Errors: OPTION for a patience or min_delta without a metric, or for a metric
  that the task lacks.
*/
PetscErrorCode TrsEarlyStoppingFromOptions(TrsOptions options, TrsEarlyStopping *early);

/*
  Find the task that -early_stopping_task names, or the first task. Without a metric, or for the
  loss, all tasks count. Errors: OPTION for an unknown task or one that lacks the metric.
*/
PetscErrorCode TrsEarlyStoppingFindTask(TrsOptions options, const TrsTaskConfigs *tasks,
                                        TrsEarlyStopping *early);

/*
  Add an evaluation's values [tasks] after `step` updates. Out: better, true for the first
  evaluation and if the value is better than all earlier ones by more than min_delta. NaN is never
  better.
*/
PetscErrorCode TrsEarlyStoppingAdd(TrsEarlyStopping *early, int64_t step, const TrsTaskConfigs *tasks,
                                   const TrsMetricValues *values, PetscBool *better);

/* Is the patience used up? */
PetscBool TrsEarlyStoppingIsOver(const TrsEarlyStopping *early);

/*
  Write a text such as "eval/auc has not risen above 0.7123 (after 300 updates) by more than 0.001
  in 3 evaluations".
*/
void TrsEarlyStoppingText(const TrsEarlyStopping *early, char *text, size_t size);

/*
  Save returns the numbers for a checkpoint, borrowed until the next call. Load restores them;
  `path` is their file, for messages. If the numbers belong to another metric, Load sets *same to
  false and changes nothing else. Errors: DATA.
*/
TrsCheckpointNumbers TrsEarlyStoppingSave(TrsEarlyStopping *early);
PetscErrorCode TrsEarlyStoppingLoad(TrsEarlyStopping *early, const char *path,
                                    const TrsCheckpointNumbers *numbers, PetscBool *same);
