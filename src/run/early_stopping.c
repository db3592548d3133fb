/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/early_stopping.h"

#include "core/names.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  const char *name;
  size_t offset; /* offset of the metric in TrsMetricValues */
  PetscBool falls;
} TrsWatchedMetric;

static const TrsWatchedMetric watched[] = {
    {"loss", offsetof(TrsMetricValues, loss), PETSC_TRUE},
    {"ne", offsetof(TrsMetricValues, ne), PETSC_TRUE},
    {"auc", offsetof(TrsMetricValues, auc), PETSC_FALSE},
    {"auprc", offsetof(TrsMetricValues, auprc), PETSC_FALSE},
    {"accuracy", offsetof(TrsMetricValues, accuracy), PETSC_FALSE},
    {"mse", offsetof(TrsMetricValues, mse), PETSC_TRUE},
    {"mae", offsetof(TrsMetricValues, mae), PETSC_TRUE},
    {"gauc", offsetof(TrsMetricValues, groups.gauc), PETSC_FALSE},
    {"group_ne", offsetof(TrsMetricValues, groups.ne), PETSC_TRUE},
    {"ndcg", offsetof(TrsMetricValues, groups.ndcg), PETSC_FALSE},
    {"recall", offsetof(TrsMetricValues, groups.recall), PETSC_FALSE},
    {"hit_rate", offsetof(TrsMetricValues, groups.hit_rate), PETSC_FALSE},
    {"precision", offsetof(TrsMetricValues, groups.precision), PETSC_FALSE},
};
/*
  Entries from TRS_FIRST_OF_GROUPS on are metrics of groups. If such a metric has several K, the
  first K counts.
*/
enum { TRS_N_WATCHED = sizeof(watched) / sizeof(watched[0]), TRS_FIRST_OF_GROUPS = 7 };

static const TrsOptionSpec specs[] = {
    {"-eval_every", TRS_OPTION_INT, "0", "[0,]", NULL, "steps",
     "evaluate on -data_eval this often during the training; 0: only after the last step"},
    {"-early_stopping_metric", TRS_OPTION_ENUM, NULL, NULL,
     "loss,ne,auc,auprc,accuracy,mse,mae,gauc,group_ne,ndcg,recall,hit_rate,precision", NULL,
     "end the training when this metric of the evaluations no longer improves; needs -eval_every. The "
     "metrics from gauc on need -metrics_group, and use the first K of -metrics_at. An evaluation without "
     "a number for it (no weight, labels of one class) counts neither as better nor as worse (default: "
     "train to the end)"},
    {"-early_stopping_task", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "the task of -tasks whose metric early stopping watches (default: all tasks for loss, else the first)"},
    {"-early_stopping_patience", TRS_OPTION_INT, "3", "[1,]", NULL, "evaluations",
     "the training ends after this many evaluations without an improvement since the best one"},
    {"-early_stopping_min_delta", TRS_OPTION_REAL, "0", "[0,]", NULL, NULL,
     "a change of the metric counts as an improvement only if it is larger than this"},
};
const TrsOptionGroup trs_early_stopping_options = TRS_OPTION_GROUP(
    "Evaluation while training, early stopping", specs);

PetscErrorCode TrsEarlyStoppingFromOptions(TrsOptions options, TrsEarlyStopping *early)
{
  const char *group = NULL, *best = NULL;
  PetscBool patience, delta;

  PetscFunctionBegin;
  *early = (TrsEarlyStopping){.metric = 0};
  PetscCall(TrsOptionsGetEnum(options, "-early_stopping_metric", &early->metric, &early->stops));
  PetscCall(TrsOptionsGetInt(options, "-early_stopping_patience", &early->patience, &patience));
  PetscCall(TrsOptionsGetReal(options, "-early_stopping_min_delta", &early->min_delta, &delta));
  PetscCall(TrsOptionsGetString(options, "-checkpoint_best", &best, &early->keeps));
  if (early->stops && early->metric >= TRS_FIRST_OF_GROUPS)
    PetscCall(TrsOptionsGetString(options, "-metrics_group", &group, NULL));
  if (early->stops && early->metric >= TRS_FIRST_OF_GROUPS && !group)
    PetscCall(TrsOptionError(options, "-early_stopping_metric",
                             "%s needs -metrics_group, the groups of samples", watched[early->metric].name));
  if (!early->stops && (patience || delta))
    PetscCall(TrsOptionError(options, patience ? "-early_stopping_patience" : "-early_stopping_min_delta",
                             "needs -early_stopping_metric, the metric to watch"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse a metric that is NaN for the task's kind of labels. */
static PetscErrorCode check_metric(TrsOptions options, const TrsTaskConfig *task,
                                   const TrsEarlyStopping *early)
{
  const char *const metric = watched[early->metric].name, *const of_numbers[] = {"loss", "mse", "mae"},
                    *const of_classes[] = {"loss", "accuracy", "accuracy"};
  PetscBool there = (PetscBool)(task->labels == TRS_LABEL_PROBABILITY);

  PetscFunctionBegin;
  for (int i = 0; i < 3; i++)
    if (strcmp(metric, task->labels == TRS_LABEL_NUMBER ? of_numbers[i] : of_classes[i]) == 0)
      there = PETSC_TRUE;
  if (!there)
    PetscCall(TrsOptionError(options, "-early_stopping_metric",
                             "task \"%s\" has no %s, expected %s (-early_stopping_task)", task->name, metric,
                             task->labels == TRS_LABEL_NUMBER ? "loss, mse or mae" : "loss or accuracy"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEarlyStoppingFindTask(TrsOptions options, const TrsTaskConfigs *tasks,
                                        TrsEarlyStopping *early)
{
  const PetscBool is_loss = (PetscBool)(!early->stops || strcmp(watched[early->metric].name, "loss") == 0);
  const char *name = NULL;
  int t = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-early_stopping_task", &name, NULL));
  while (name && t < tasks->n && (!tasks->named || strcmp(tasks->task[t].name, name) != 0)) t++;
  if (name && (t == tasks->n || !early->stops))
    PetscCall(TrsOptionError(options, "-early_stopping_task",
                             early->stops ? "is none of -tasks"
                                          : "needs -early_stopping_metric, the metric to watch"));
  early->task = is_loss && !name ? -1 : t;
  early->task_name = tasks->n > 1 && early->task >= 0 ? tasks->task[t].name : NULL;
  if (early->stops && early->task >= 0) PetscCall(check_metric(options, &tasks->task[t], early));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The watched metric among the values of a task. */
static double metric_of(const TrsEarlyStopping *early, const TrsMetricValues *values)
{
  return *(const double *)(const void *)((const char *)values + watched[early->metric].offset);
}

/* The watched value. NaN if it is meaningless. */
static double watched_value(const TrsEarlyStopping *early, const TrsTaskConfigs *tasks,
                            const TrsMetricValues *values)
{
  TrsMetricValues measured;

  if (early->task < 0) return TrsTaskLoss(tasks, values);
  measured = values[early->task];
  TrsMetricsKeepMeasured(&measured);
  return metric_of(early, &measured);
}

/* Write the name of the watched metric, such as "eval/click_auc". */
static const char *watched_name(const TrsEarlyStopping *early, char *text, size_t size)
{
  snprintf(text, size, "eval/%s%s%s", early->task_name ? early->task_name : "", early->task_name ? "_" : "",
           watched[early->metric].name);
  return text;
}

/* The reason why the watched value is not a number. */
static const char *reason(const TrsEarlyStopping *early, const TrsTaskConfigs *tasks,
                          const TrsMetricValues *values)
{
  const int first = PetscMax(early->task, 0), end = early->task < 0 ? tasks->n : early->task + 1;

  for (int t = first; t < end; t++) {
    if (values[t].n_samples == 0) return "no sample has a label of a task";
    if (values[t].lack == TRS_LACK_WEIGHT) return "no sample has a weight";
  }
  if (early->task >= 0 && isfinite(metric_of(early, &values[early->task])))
    return "all labels are of one class"; /* the results file does have a number */
  return early->metric >= TRS_FIRST_OF_GROUPS ? "no group counts" : "it is not finite";
}

static PetscErrorCode warn(TrsEarlyStopping *early, MPI_Comm comm, int64_t step, const TrsTaskConfigs *tasks,
                           const TrsMetricValues *values)
{
  char name[2 * TRS_TASK_NAME];

  PetscFunctionBegin;
  if (early->told || !(early->stops || early->keeps)) PetscFunctionReturn(PETSC_SUCCESS);
  early->told = PETSC_TRUE;
  PetscCall(PetscFPrintf(
      comm, PETSC_STDERR,
      "trshard: warning: eval after step %" PRId64 ": %s is no number: %s. An evaluation without a number "
      "counts neither as better nor as worse%s%s\n",
      step, watched_name(early, name, sizeof(name)), reason(early, tasks, values),
      early->stops ? " (-early_stopping_metric)" : "",
      early->keeps && !early->has_best
          ? "; -checkpoint_best gets the weights of the last evaluation until one has a number"
          : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEarlyStoppingAdd(TrsEarlyStopping *early, MPI_Comm comm, int64_t step,
                                   const TrsTaskConfigs *tasks, const TrsMetricValues *values,
                                   PetscBool *keep)
{
  const double value = watched_value(early, tasks, values);
  const double gain = watched[early->metric].falls ? early->best - value : value - early->best;

  PetscFunctionBegin;
  PetscCheck(
      early->task < 0 || values[early->task].n_samples > 0, PETSC_COMM_SELF, TRS_ERR_DATA,
      "the evaluation data has no label of task \"%.100s\", whose metric -early_stopping_metric watches",
      tasks->task[early->task].name);
  *keep = (PetscBool)!early->has_best;
  if (!isfinite(value)) {
    PetscCall(warn(early, comm, step, tasks, values));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  *keep = (PetscBool)(!early->has_best || gain > early->min_delta);
  if (*keep) {
    early->has_best = PETSC_TRUE;
    early->best = value;
    early->best_step = step;
    early->n_worse = 0;
  } else {
    early->n_worse++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsEarlyStoppingIsOver(const TrsEarlyStopping *early)
{
  return (PetscBool)(early->stops && early->n_worse >= early->patience);
}

void TrsEarlyStoppingText(const TrsEarlyStopping *early, char *text, size_t size)
{
  char name[2 * TRS_TASK_NAME];

  snprintf(text, size,
           "%s has not %s %.6g (after %" PRId64 " update%s) by more than %g in %" PRId64 " evaluation%s",
           watched_name(early, name, sizeof(name)),
           watched[early->metric].falls ? "fallen below" : "risen above", early->best, early->best_step,
           TrsPlural(early->best_step, "s"), early->min_delta, early->n_worse,
           TrsPlural(early->n_worse, "s"));
}

/* Encode the watched metric as one number, together with the task if there are several. */
static int watched_number(const TrsEarlyStopping *early)
{
  return early->metric + (early->task_name ? (early->task + 1) * TRS_N_WATCHED : 0);
}

TrsCheckpointNumbers TrsEarlyStoppingSave(TrsEarlyStopping *early)
{
  const double now[TRS_EARLY_STOPPING_NUMBERS] = {watched_number(early), early->has_best, early->best,
                                                  (double)early->best_step, (double)early->n_worse};

  for (int i = 0; i < TRS_EARLY_STOPPING_NUMBERS; i++) early->kept[i] = now[i];
  return (TrsCheckpointNumbers){TRS_EARLY_STOPPING_NUMBERS, early->kept};
}

PetscErrorCode TrsEarlyStoppingLoad(TrsEarlyStopping *early, const char *path,
                                    const TrsCheckpointNumbers *numbers, PetscBool *same)
{
  const double *value = numbers->value;

  PetscFunctionBegin;
  PetscCheck(numbers->n == TRS_EARLY_STOPPING_NUMBERS, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute early_stopping has %d numbers, expected %d", path, numbers->n,
             TRS_EARLY_STOPPING_NUMBERS);
  for (int i = 0; i < numbers->n; i++)
    PetscCheck(isfinite(value[i]) && (i == 2 || (value[i] >= 0 && value[i] < 9e15)), PETSC_COMM_SELF,
               TRS_ERR_DATA, "%s: attribute early_stopping has the number %g", path, value[i]);
  PetscCheck(value[0] < TRS_N_WATCHED * (TRS_MOST_TASKS + 1), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute early_stopping names metric %g of %d", path, value[0],
             TRS_N_WATCHED * (TRS_MOST_TASKS + 1));
  *same = (PetscBool)((int)value[0] == watched_number(early));
  if (!*same) PetscFunctionReturn(PETSC_SUCCESS);
  early->has_best = (PetscBool)(value[1] != 0);
  early->best = value[2];
  early->best_step = (int64_t)value[3];
  /* Earlier versions counted an evaluation without a number as worse, even before there was a
     best one. */
  early->n_worse = early->has_best ? (int64_t)value[4] : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
