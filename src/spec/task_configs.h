/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A model's learning tasks. Each task is a prediction for a sample, with its own label, loss and
  layers. (The program's own tasks, -task, are TRS_TASKS in spec/vocabulary.h.)

  Without -tasks a model has one task, which predicts the probability of the label.
*/
#pragma once

#include "core/options/options.h"
#include "spec/vocabulary.h"

enum { TRS_MOST_TASKS = 64, TRS_TASK_NAME = 64 /* most bytes of a name, with its final 0 */ };

typedef struct {
  const char *name; /* name in -tasks; NULL if -tasks is not given */
  /* name of the label given by the option; NULL means the dataset's label with the task's name */
  const char *label;
  TrsLossKind loss;
  TrsLabelKind labels; /* the kind of labels that the loss needs */
  int classes;         /* number of values per prediction: the classes of softmax, otherwise 1 */
  int column;          /* index of the task's first column in the predictions of all tasks */
  double weight;       /* weight of the task's loss in the step's loss */
  double pos_weight;   /* used by bce: weight of positive samples */
  /* used by huber: the error above which the loss is linear instead of quadratic */
  double huber_delta;
  int n_arch;    /* number of layers on top of the layers that all tasks share */
  int64_t *arch; /* [n_arch] sizes of these layers; the last size is `classes` */
} TrsTaskConfig;

typedef struct {
  PetscBool named;     /* true if -tasks was given; then a NaN label counts as missing */
  int n, columns;      /* number of tasks; number of columns of all predictions */
  TrsTaskConfig *task; /* [n] */
} TrsTaskConfigs;

extern const TrsOptionGroup trs_tasks_options, trs_task_options;

/*
  TrsTaskConfigsFromOptions - Read -tasks, -tasks_<key> and -task_<name>_<key>.

  Not collective. The result borrows names from the options, so it must not be used after they are
  freed.

  In:     over_arch  [n_over] sizes of -over_arch, used for tasks without their own sizes. The last
                     size is replaced by the number of the task's values per prediction
  Out:    tasks      free with TrsTaskConfigsFree()
  Errors: OPTION
*/
PetscErrorCode TrsTaskConfigsFromOptions(TrsOptions options, int n_over, const int64_t *over_arch,
                                         TrsTaskConfigs *tasks);
PetscErrorCode TrsTaskConfigsFree(TrsTaskConfigs *tasks);

/*
  The parameter that the kernels in compute/ need for the task's loss: pos_weight or huber_delta.
*/
float TrsTaskParameter(const TrsTaskConfig *task);
