/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Early stopping ends a training when an evaluation metric has not become better for some
  evaluations. It also tells which evaluation was the best.

  The struct is plain data. All ranks hold the same values, because evaluations give every rank the
  same metrics. Nothing here is collective.
*/
#pragma once

#include "core/options/options.h"
#include "io/checkpoint/checkpoint.h"
#include "train/metrics/task_metrics.h"

enum { TRS_EARLY_STOPPING_NUMBERS = 5 }; /* numbers that a checkpoint keeps */

typedef struct {
  /* -early_stopping_metric was given.
     Otherwise only the loss is watched, for the best checkpoint. */
  PetscBool stops;
  int metric; /* index into the option's choices */
  /* The task whose metric it is; -1: the loss of all tasks by their weights. */
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
  that the task does not have.
*/
PetscErrorCode TrsEarlyStoppingFromOptions(TrsOptions options, TrsEarlyStopping *early);

/*
  Find the task that -early_stopping_task names, or the first one; without a metric, or for the
  loss, all tasks count. Errors: OPTION for a task that is not there, or that lacks the metric.
*/
PetscErrorCode TrsEarlyStoppingFindTask(TrsOptions options, const TrsTaskConfigs *tasks,
                                        TrsEarlyStopping *early);

/*
  Add an evaluation's values [tasks] after `step` updates. Out: better, set for the first evaluation
  and for one that is better than all before by more than min_delta. NaN is never better.
*/
PetscErrorCode TrsEarlyStoppingAdd(TrsEarlyStopping *early, int64_t step, const TrsTaskConfigs *tasks,
                                   const TrsMetricValues *values, PetscBool *better);

/* Tell whether the patience is used up. */
PetscBool TrsEarlyStoppingIsOver(const TrsEarlyStopping *early);

/*
  Write a text such as "eval/auc has not risen above 0.7123 (after 300 updates) by more than 0.001
  in 3 evaluations".
*/
void TrsEarlyStoppingText(const TrsEarlyStopping *early, char *text, size_t size);

/*
  Save gives the numbers for a checkpoint, borrowed until the next call. Load takes them back;
  `path` says where they come from, for messages. If the numbers belong to another metric, *same is
  false and nothing is taken. Errors: DATA.
*/
TrsCheckpointNumbers TrsEarlyStoppingSave(TrsEarlyStopping *early);
PetscErrorCode TrsEarlyStoppingLoad(TrsEarlyStopping *early, const char *path,
                                    const TrsCheckpointNumbers *numbers, PetscBool *same);
