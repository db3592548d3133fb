/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The learning tasks of a model: what it predicts of a sample, each with a label, a loss and layers
  of its own. (The program's own tasks, -task, are TRS_TASKS of spec/vocabulary.h.)

  Without -tasks a model has one task, which is the probability of the label.
*/
#pragma once

#include "core/options/options.h"
#include "spec/vocabulary.h"

enum { TRS_MOST_TASKS = 64, TRS_TASK_NAME = 64 /* bytes of a name, with the zero */ };

typedef struct {
  const char *name;  /* of -tasks; NULL without -tasks */
  const char *label; /* that of the option, or NULL: the dataset's label of the task's name */
  TrsLossKind loss;
  TrsLabelKind labels; /* what the labels are */
  int classes;         /* numbers of a prediction: of softmax, else 1 */
  int column;          /* first column of the task in the predictions of all tasks */
  double weight;       /* of the task's loss in the step's loss */
  double pos_weight;   /* bce: weight of positives */
  double huber_delta;  /* huber: where the loss turns from a square to a line */
  int n_arch;          /* layers above what the tasks share */
  int64_t *arch;       /* [n_arch] their sizes; the last is `classes` */
} TrsTaskConfig;

typedef struct {
  PetscBool named;     /* -tasks was given; a label that is NaN is then a missing one */
  int n, columns;      /* tasks, and columns of all their predictions */
  TrsTaskConfig *task; /* [n] */
} TrsTaskConfigs;

extern const TrsOptionGroup trs_tasks_options, trs_task_options;

/*
  TrsTaskConfigsFromOptions - Read -tasks, -tasks_<key> and -task_<name>_<key>.

  Not collective. The options must live as long as the result, which borrows names.

  In:     over_arch  [n_over] sizes of -over_arch, for tasks without sizes of their own; its last
                     size is replaced by the task's
  Out:    tasks      free with TrsTaskConfigsFree()
  Errors: OPTION
*/
PetscErrorCode TrsTaskConfigsFromOptions(TrsOptions options, int n_over, const int64_t *over_arch,
                                         TrsTaskConfigs *tasks);
PetscErrorCode TrsTaskConfigsFree(TrsTaskConfigs *tasks);

/* The numbers of the samples' losses for the kernels of compute/: pos_weight or huber_delta. */
float TrsTaskParameter(const TrsTaskConfig *task);
