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
  PetscBool keeps; /* -checkpoint_best was given */
  PetscBool told;  /* a warning named the metric that was no number */
  int metric;      /* index into the option's choices */
  /* The task whose metric is watched; -1: the loss of all tasks by their weights. */
  int task;
  const char *task_name; /* NULL with one task */
  int64_t patience;
  double min_delta;
  PetscBool has_best;
  double best;
  int64_t best_step; /* updates done before the best evaluation */
  int64_t n_worse;   /* evaluations with a number since the best one */
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
  Add an evaluation's values [tasks] after `step` updates.

  A metric that is no number (not finite, or of one class, as TrsMetricsKeepMeasured() says) counts
  neither as better nor as worse. The first such evaluation is a warning on rank 0 of comm.

  Out: keep  the weights are the best so far: the evaluation is the first with a number, or better
             than all earlier ones by more than min_delta, or none has had a number yet
  Errors: DATA if no sample has a label of the task whose metric is watched
*/
PetscErrorCode TrsEarlyStoppingAdd(TrsEarlyStopping *early, MPI_Comm comm, int64_t step,
                                   const TrsTaskConfigs *tasks, const TrsMetricValues *values,
                                   PetscBool *keep);

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
