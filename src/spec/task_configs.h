/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A model's learning tasks. Each task is a prediction for a sample, with its own label, loss and
  layers. (The program's own tasks, -task, are TRS_TASKS in spec/vocabulary.h.)

  Without -tasks a model has one task, which predicts the probability of the label.
*/
#pragma once

#include "core/options/options.h"
#include "spec/vocabulary.h"

enum { TRS_MOST_TASKS = 64, TRS_TASK_NAME = 64 /* bytes of a name, with the zero */ };

typedef struct {
  const char *name;  /* from -tasks; NULL without -tasks */
  const char *label; /* the option's label; NULL: the dataset's label with the task's name */
  TrsLossKind loss;
  TrsLabelKind labels; /* kind of the labels */
  int classes;         /* numbers per prediction: softmax's classes, else 1 */
  int column;          /* the task's first column in the predictions of all tasks */
  double weight;       /* weight of the task's loss in the step's loss */
  double pos_weight;   /* bce: weight of positives */
  double huber_delta;  /* huber: the error at which the loss changes from a square to a line */
  int n_arch;          /* layers above the layers that all tasks share */
  int64_t *arch;       /* [n_arch] their sizes; the last is `classes` */
} TrsTaskConfig;

typedef struct {
  PetscBool named;     /* -tasks was given; a NaN label then counts as missing */
  int n, columns;      /* tasks, and columns of all predictions */
  TrsTaskConfig *task; /* [n] */
} TrsTaskConfigs;

extern const TrsOptionGroup trs_tasks_options, trs_task_options;

/*
  TrsTaskConfigsFromOptions - Read -tasks, -tasks_<key> and -task_<name>_<key>.

  Not collective. The options must live as long as the result, which borrows names.

  In:     over_arch  [n_over] sizes of -over_arch, for tasks without their own sizes; the task's
                     last size replaces the list's last size
  Out:    tasks      free with TrsTaskConfigsFree()
  Errors: OPTION
*/
PetscErrorCode TrsTaskConfigsFromOptions(TrsOptions options, int n_over, const int64_t *over_arch,
                                         TrsTaskConfigs *tasks);
PetscErrorCode TrsTaskConfigsFree(TrsTaskConfigs *tasks);

/* The parameter of the task's loss for the kernels in compute/: pos_weight or huber_delta. */
float TrsTaskParameter(const TrsTaskConfig *task);
