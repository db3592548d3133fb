/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/record.h"

#include "train/metrics/task_metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

enum { TRS_PREFIX = TRS_TASK_NAME + 32 };

typedef struct {
  const char *name;
  size_t offset; /* offset of the double in its struct */
} TrsColumn;

/* The metrics have TorchRec's names. In /metrics they also have the prefix window_ or lifetime_. */
static const TrsColumn metric_columns[] = {
    {"ne", offsetof(TrsMetricValues, ne)},
    {"auc", offsetof(TrsMetricValues, auc)},
    {"auprc", offsetof(TrsMetricValues, auprc)},
    {"accuracy", offsetof(TrsMetricValues, accuracy)},
    {"calibration", offsetof(TrsMetricValues, calibration)},
    {"ctr", offsetof(TrsMetricValues, ctr)},
    {"mse", offsetof(TrsMetricValues, mse)},
    {"rmse", offsetof(TrsMetricValues, rmse)},
    {"mae", offsetof(TrsMetricValues, mae)},
};
static const TrsColumn throughput_columns[] = {
    {"window_throughput", offsetof(TrsRunningValues, window_throughput)},
    {"lifetime_throughput", offsetof(TrsRunningValues, lifetime_throughput)},
    {"attempt_throughput", offsetof(TrsRunningValues, attempt_throughput)},
};
enum {
  TRS_N_METRIC_COLUMNS = sizeof(metric_columns) / sizeof(metric_columns[0]),
  TRS_N_THROUGHPUT_COLUMNS = sizeof(throughput_columns) / sizeof(throughput_columns[0])
};

static double at(const void *values, size_t offset)
{
  return *(const double *)(const void *)((const char *)values + offset);
}

/* Append a row with all metrics except `left_out`. The columns are named <prefix><metric>. */
static PetscErrorCode append_metrics(TrsResults results, const char *prefix, const TrsMetricValues *values,
                                     const char *left_out)
{
  char path[TRS_PREFIX + 32];
  PetscBool out;

  PetscFunctionBegin;
  for (int i = 0; i < TRS_N_METRIC_COLUMNS; i++) {
    PetscCall(PetscStrcmp(metric_columns[i].name, left_out, &out));
    if (out) continue;
    PetscCall(PetscSNPrintf(path, sizeof(path), "%s%s", prefix, metric_columns[i].name));
    PetscCall(TrsResultsAppend(results, path, at(values, metric_columns[i].offset)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const TrsColumn group_columns[] = {
    {"gauc", offsetof(TrsGroupValues, gauc)},
    {"group_ne", offsetof(TrsGroupValues, ne)},
    {"group_mse", offsetof(TrsGroupValues, mse)},
    {"group_mae", offsetof(TrsGroupValues, mae)},
};
/* Metrics of groups. Each is an array with an entry for each K. */
static const TrsColumn ranking_columns[] = {
    {"ndcg", offsetof(TrsGroupValues, ndcg)},
    {"recall", offsetof(TrsGroupValues, recall)},
    {"hit_rate", offsetof(TrsGroupValues, hit_rate)},
    {"precision", offsetof(TrsGroupValues, precision)},
};
enum {
  TRS_N_GROUP_COLUMNS = sizeof(group_columns) / sizeof(group_columns[0]),
  TRS_N_RANKING_COLUMNS = sizeof(ranking_columns) / sizeof(ranking_columns[0])
};

/* If there are groups, append a row of their metrics. */
static PetscErrorCode append_groups(TrsResults results, const char *prefix, const TrsGroupValues *values)
{
  const struct {
    const char *name;
    int64_t n;
  } counts[] = {{"groups", values->n_groups},
                {"groups_with_positive", values->n_positive},
                {"groups_with_both", values->n_both}};
  char path[TRS_PREFIX + 64];

  PetscFunctionBegin;
  if (values->n_at == 0) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < 3; i++) {
    PetscCall(PetscSNPrintf(path, sizeof(path), "%s%s", prefix, counts[i].name));
    PetscCall(TrsResultsAppendInt(results, path, counts[i].n));
  }
  for (int i = 0; i < TRS_N_GROUP_COLUMNS; i++) {
    PetscCall(PetscSNPrintf(path, sizeof(path), "%s%s", prefix, group_columns[i].name));
    PetscCall(TrsResultsAppend(results, path, at(values, group_columns[i].offset)));
  }
  for (int i = 0; i < TRS_N_RANKING_COLUMNS; i++) {
    for (int k = 0; k < values->n_at; k++) {
      snprintf(path, sizeof(path), "%s%s_at_%" PRId64, prefix, ranking_columns[i].name, values->at[k]);
      PetscCall(TrsResultsAppend(results, path,
                                 at(values, ranking_columns[i].offset + (size_t)k * sizeof(double))));
    }
  }
  if (values->n_segments == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscSNPrintf(path, sizeof(path), "%ssegment_ne", prefix));
  PetscCall(TrsResultsAppendRow(results, path, values->n_segments, values->segment_ne));
  PetscCall(PetscSNPrintf(path, sizeof(path), "%ssegment_samples", prefix));
  PetscCall(TrsResultsAppendRow(results, path, values->n_segments, values->segment_samples));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLearningRatesFromOptions(TrsOptions options, TrsLearningRates *rates)
{
  PetscFunctionBegin;
  PetscCall(TrsScheduleFromOptions(options, &rates->schedule));
  PetscCall(TrsOptionsGetReal(options, "-dense_learning_rate", &rates->dense, NULL));
  PetscCall(TrsOptionsGetReal(options, "-embedding_learning_rate", &rates->embedding, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsLearningRatesFree(TrsLearningRates *rates)
{
  PetscFunctionBegin;
  PetscCall(TrsScheduleFree(&rates->schedule));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRecordStep(TrsResults results, int64_t step, const TrsStepResult *result,
                             const TrsLearningRates *rates, double seconds)
{
  const double factor = TrsScheduleFactor(&rates->schedule, step + 1);

  PetscFunctionBegin;
  PetscCall(TrsResultsAppendInt(results, "train/step", step));
  PetscCall(TrsResultsAppend(results, "train/loss", result->loss));
  PetscCall(TrsResultsAppend(results, "train/samples_per_s",
                             (double)result->global_batch / PetscMax(seconds, 1e-9)));
  PetscCall(TrsResultsAppend(results, "train/dense_learning_rate", rates->dense * factor));
  PetscCall(TrsResultsAppend(results, "train/embedding_learning_rate", rates->embedding * factor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the prefix of a task's columns: "eval/", or "eval/click_" if there are several tasks. */
static PetscErrorCode prefix_of(const TrsTaskConfigs *tasks, int t, const char *group, const char *part,
                                char prefix[TRS_PREFIX])
{
  PetscFunctionBegin;
  if (tasks->n == 1)
    PetscCall(PetscSNPrintf(prefix, TRS_PREFIX, "%s/%s", group, part));
  else
    PetscCall(PetscSNPrintf(prefix, TRS_PREFIX, "%s/%s_%s", group, tasks->task[t].name, part));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode append_number(TrsResults results, const char *prefix, const char *name, double value)
{
  char path[TRS_PREFIX + 32];

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(path, sizeof(path), "%s%s", prefix, name));
  PetscCall(TrsResultsAppend(results, path, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Append the metrics of an evaluation to the columns of a group such as "eval". */
static PetscErrorCode append_evaluation(TrsResults results, const char *group, const TrsTaskConfigs *tasks,
                                        const TrsMetricValues *values)
{
  char prefix[TRS_PREFIX];

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(prefix, sizeof(prefix), "%s/", group));
  PetscCall(append_number(results, prefix, "loss", TrsTaskLoss(tasks, values)));
  for (int t = 0; t < tasks->n; t++) {
    PetscCall(prefix_of(tasks, t, group, "", prefix));
    if (tasks->n > 1) PetscCall(append_number(results, prefix, "loss", values[t].loss));
    PetscCall(append_metrics(results, prefix, &values[t], ""));
    PetscCall(append_groups(results, prefix, &values[t].groups));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRecordMetrics(TrsResults results, int64_t step, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values)
{
  PetscFunctionBegin;
  /* Drop the old row, because a resumed run may repeat the evaluation of the step at which it
     starts. */
  PetscCall(TrsResultsDropLast(results, "eval/", "eval/step", step));
  PetscCall(TrsResultsAppendInt(results, "eval/step", step));
  PetscCall(append_evaluation(results, "eval", tasks, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRecordAhead(TrsResults results, int64_t step, const char *file, int64_t position,
                              const TrsTaskConfigs *tasks, const TrsMetricValues *values)
{
  PetscFunctionBegin;
  PetscCall(TrsResultsAppendInt(results, "ahead/step", step));
  PetscCall(TrsResultsAppendText(results, "ahead/file", file));
  PetscCall(TrsResultsAppendInt(results, "ahead/position", position));
  PetscCall(TrsResultsAppendInt(results, "ahead/samples", values[0].n_samples));
  PetscCall(append_evaluation(results, "ahead", tasks, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRecordRunningMetrics(TrsResults results, int64_t step, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values)
{
  char prefix[TRS_PREFIX];

  PetscFunctionBegin;
  PetscCall(TrsResultsDropLast(results, "metrics/", "metrics/step", step));
  PetscCall(TrsResultsAppendInt(results, "metrics/step", step));
  PetscCall(TrsResultsAppendInt(results, "metrics/total_examples", values->total_examples));
  PetscCall(TrsResultsAppendInt(results, "metrics/attempt_examples", values->attempt_examples));
  for (int t = 0; t < tasks->n; t++) {
    PetscCall(prefix_of(tasks, t, "metrics", "window_", prefix));
    PetscCall(append_number(results, prefix, "log_loss", values[t].window.loss));
    PetscCall(append_metrics(results, prefix, &values[t].window, ""));
    PetscCall(append_groups(results, prefix, &values[t].window.groups));
    PetscCall(prefix_of(tasks, t, "metrics", "lifetime_", prefix));
    PetscCall(append_number(results, prefix, "log_loss", values[t].lifetime.loss));
    PetscCall(append_metrics(results, prefix, &values[t].lifetime, "auc"));
  }
  for (int i = 0; i < TRS_N_THROUGHPUT_COLUMNS; i++)
    PetscCall(append_number(results, "metrics/", throughput_columns[i].name,
                            at(values, throughput_columns[i].offset)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
