/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/metrics.h"

#include "core/names.h"
#include "train/metrics/task_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A line of metrics, and the text that it has so far. */
typedef struct {
  char text[1024];
  const char *gap; /* text before the next value */
  const char *why; /* the reason why a value is not a number, such as " (one class)" */
} TrsMetricsLine;

static void add_text(TrsMetricsLine *line, const char *text)
{
  snprintf(line->text + strlen(line->text), sizeof(line->text) - strlen(line->text), "%s", text);
}

static TrsMetricsLine new_line(const char *what)
{
  TrsMetricsLine line = {.text = "", .gap = " ", .why = ""};

  add_text(&line, what);
  return line;
}

/* Add a metric's name, and its value with the given number of decimals. */
static void add_value(TrsMetricsLine *line, const char *name, int decimals, double value)
{
  char number[400];

  snprintf(number, sizeof(number), "%.*f", decimals, value);
  add_text(line, line->gap);
  add_text(line, name);
  add_text(line, isnan(value) ? " no number" : " ");
  add_text(line, isnan(value) ? line->why : number);
  line->gap = "  ";
}

static PetscErrorCode print_line(MPI_Comm comm, const TrsMetricsLine *line, const TrsMetricValues *values)
{
  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "%s  (%" PRId64 " sample%s)\n", line->text, values->n_samples,
                        TrsPlural(values->n_samples, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the available metrics of a task whose labels are numbers or classes. */
static void add_other(TrsMetricsLine *line, const TrsTaskConfig *task, const TrsMetricValues *values)
{
  add_value(line, "loss", 5, values->loss);
  if (task->labels == TRS_LABEL_CLASS) {
    add_value(line, "accuracy", 5, values->accuracy);
    return;
  }
  add_value(line, "RMSE", 5, values->rmse);
  add_value(line, "MAE", 5, values->mae);
  add_value(line, "mean label", 5, values->ctr);
  add_value(line, "mean prediction", 5, values->prediction);
}

/* Print that there are no metrics, because no sample has both a label and a weight. */
static PetscErrorCode print_nothing(MPI_Comm comm, const char *what, const TrsMetricValues *values)
{
  PetscFunctionBegin;
  if (values->n_samples == 0)
    PetscCall(PetscPrintf(comm, "%s no sample has a label\n", what));
  else
    PetscCall(PetscPrintf(comm, "%s no number: no sample has a weight  (%" PRId64 " sample%s)\n", what,
                          values->n_samples, TrsPlural(values->n_samples, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get the reason why some values are not numbers. */
static const char *reason(const TrsMetricValues *values)
{
  return values->lack == TRS_LACK_CLASS ? " (one class)" : "";
}

static PetscErrorCode report_running(MPI_Comm comm, const char *name, const TrsTaskConfig *task,
                                     const TrsMetricValues *found, PetscBool has_auc)
{
  TrsMetricValues values = *found;
  char what[2 * TRS_TASK_NAME];
  TrsMetricsLine line;

  PetscFunctionBegin;
  snprintf(what, sizeof(what), "%-10s", name);
  if (values.lack == TRS_LACK_WEIGHT) {
    PetscCall(print_nothing(comm, what, &values));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  TrsMetricsKeepMeasured(&values);
  line = new_line(what);
  line.why = reason(&values);
  if (task->labels != TRS_LABEL_PROBABILITY) {
    add_other(&line, task, &values);
  } else {
    add_value(&line, "NE", 5, values.ne);
    if (has_auc) add_value(&line, "AUC", 5, values.auc);
    add_value(&line, "AUPRC", 5, values.auprc);
    add_value(&line, "accuracy", 5, values.accuracy);
    add_value(&line, "calibration", 4, values.calibration);
    add_value(&line, "CTR", 5, values.ctr);
    add_value(&line, "RMSE", 5, values.rmse);
  }
  PetscCall(print_line(comm, &line, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print the NE of the first segments, and the segment with the largest NE. The results have all
  segments.
*/
static PetscErrorCode print_segments(MPI_Comm comm, const TrsGroupValues *values)
{
  enum { TRS_SHOWN = 8 };
  int worst = -1;

  PetscFunctionBegin;
  if (values->n_segments == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(comm, "%-10s NE of segments 0 ..:", ""));
  for (int i = 0; i < values->n_segments; i++) {
    const double ne = values->segment_ne[i];
    const PetscBool means = (PetscBool)(values->segment_both[i] > 0.0 && !isnan(ne));

    if (i < TRS_SHOWN) PetscCall(PetscPrintf(comm, means ? " %.5g" : " -", ne));
    if (means && (worst < 0 || ne > values->segment_ne[worst])) worst = i;
  }
  PetscCall(PetscPrintf(comm, values->n_segments > TRS_SHOWN ? " ..." : ""));
  if (worst >= 0)
    PetscCall(PetscPrintf(comm, "  (worst: %d of %d, %.0f sample%s)", worst, values->n_segments,
                          values->segment_samples[worst],
                          TrsPlural((int64_t)values->segment_samples[worst], "s")));
  PetscCall(PetscPrintf(comm, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make the line with the metrics of each group's first values->at[k] samples. */
static TrsMetricsLine line_at(const TrsGroupValues *values, int k)
{
  char text[64];
  TrsMetricsLine line;

  snprintf(text, sizeof(text), "%-10s @%" PRId64 ":", "", values->at[k]);
  line = new_line(text);
  add_value(&line, "NDCG", 5, values->ndcg[k]);
  add_value(&line, "recall", 5, values->recall[k]);
  add_value(&line, "hit rate", 5, values->hit_rate[k]);
  add_value(&line, "precision", 5, values->precision[k]);
  return line;
}

/* If there are groups, print their metrics, and the number of groups that were counted. */
static PetscErrorCode print_groups(MPI_Comm comm, const char *what, const TrsGroupValues *values)
{
  TrsMetricsLine line;
  char text[128];

  PetscFunctionBegin;
  if (values->n_at == 0) PetscFunctionReturn(PETSC_SUCCESS);
  snprintf(text, sizeof(text), "%-10s %" PRId64 " group%s:", what, values->n_groups,
           TrsPlural(values->n_groups, "s"));
  line = new_line(text);
  add_value(&line, "GAUC", 5, values->gauc);
  add_value(&line, "NE", 5, values->ne);
  snprintf(text, sizeof(text), " (%" PRId64 " group%s with both classes)", values->n_both,
           TrsPlural(values->n_both, "s"));
  add_text(&line, text);
  add_value(&line, "MSE", 5, values->mse);
  add_value(&line, "MAE", 5, values->mae);
  PetscCall(PetscPrintf(comm, "%s", line.text));
  for (int k = 0; k < values->n_at; k++) {
    line = line_at(values, k);
    PetscCall(PetscPrintf(comm, "\n%s", line.text));
  }
  PetscCall(PetscPrintf(comm, " (%" PRId64 " group%s with a positive)\n", values->n_positive,
                        TrsPlural(values->n_positive, "s")));
  PetscCall(print_segments(comm, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the name of a task's line: "eval", or "eval, click" if there are several tasks. */
static const char *name_line(const TrsTaskConfigs *tasks, int t, const char *what, char *text, size_t size)
{
  if (tasks->n == 1) return what;
  snprintf(text, size, "%.40s, %.64s", what, tasks->task[t].name);
  return text;
}

PetscErrorCode TrsReportRunningMetrics(MPI_Comm comm, const TrsTaskConfigs *tasks,
                                       const TrsRunningValues *values)
{
  char text[2 * TRS_TASK_NAME];

  PetscFunctionBegin;
  for (int t = 0; t < tasks->n; t++) {
    const char *what = name_line(tasks, t, "window", text, sizeof(text));

    PetscCall(report_running(comm, what, &tasks->task[t], &values[t].window, PETSC_TRUE));
    PetscCall(print_groups(comm, "in groups", &values[t].window.groups));
    what = name_line(tasks, t, "lifetime", text, sizeof(text));
    PetscCall(report_running(comm, what, &tasks->task[t], &values[t].lifetime, PETSC_FALSE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode report_task(MPI_Comm comm, const char *what, const TrsTaskConfig *task,
                                  const TrsMetricValues *found)
{
  TrsMetricValues values = *found;
  char name[2 * TRS_TASK_NAME], padded[2 * TRS_TASK_NAME];
  TrsMetricsLine line;

  PetscFunctionBegin;
  snprintf(name, sizeof(name), "%.120s:", what);
  if (values.lack == TRS_LACK_WEIGHT) {
    PetscCall(print_nothing(comm, name, &values));
  } else {
    TrsMetricsKeepMeasured(&values);
    snprintf(padded, sizeof(padded), "%-10s", name);
    line = new_line(task->labels == TRS_LABEL_PROBABILITY ? name : padded);
    line.why = reason(&values);
    if (task->labels != TRS_LABEL_PROBABILITY) {
      add_other(&line, task, &values);
    } else {
      add_value(&line, "loss", 5, values.loss);
      add_value(&line, "AUC", 5, values.auc);
      add_value(&line, "NE", 5, values.ne);
      add_value(&line, "accuracy", 5, values.accuracy);
      add_value(&line, "calibration", 4, values.calibration);
    }
    PetscCall(print_line(comm, &line, &values));
  }
  PetscCall(print_groups(comm, "groups", &values.groups));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportMetrics(MPI_Comm comm, const char *what, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values)
{
  char text[2 * TRS_TASK_NAME];
  TrsMetricsLine line;

  PetscFunctionBegin;
  for (int t = 0; t < tasks->n; t++)
    PetscCall(report_task(comm, name_line(tasks, t, what, text, sizeof(text)), &tasks->task[t], &values[t]));
  if (tasks->n > 1) {
    snprintf(text, sizeof(text), "%.120s:", what);
    line = new_line(text);
    add_value(&line, "loss", 5, TrsTaskLoss(tasks, values));
    PetscCall(PetscPrintf(comm, "%s, the sum of the tasks' losses by their weights\n", line.text));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
