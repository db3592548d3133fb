/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/metrics.h"

#include "core/names.h"
#include "train/metrics/task_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Print the available metrics of a task whose labels are numbers or classes. */
static PetscErrorCode print_other(MPI_Comm comm, const char *what, const TrsTaskConfig *task,
                                  const TrsMetricValues *values)
{
  PetscFunctionBegin;
  if (task->labels == TRS_LABEL_CLASS)
    PetscCall(PetscPrintf(comm, "%-10s loss %.5f  accuracy %.5f  (%" PRId64 " sample%s)\n", what,
                          values->loss, values->accuracy, values->n_samples,
                          TrsPlural(values->n_samples, "s")));
  else
    PetscCall(
        PetscPrintf(comm,
                    "%-10s loss %.5f  RMSE %.5f  MAE %.5f  mean label %.5f  mean prediction %.5f  (%" PRId64
                    " sample%s)\n",
                    what, values->loss, values->rmse, values->mae, values->ctr, values->prediction,
                    values->n_samples, TrsPlural(values->n_samples, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode report_running(MPI_Comm comm, const char *what, const TrsTaskConfig *task,
                                     const TrsMetricValues *values)
{
  char auc[32] = "";

  PetscFunctionBegin;
  if (task->labels != TRS_LABEL_PROBABILITY) {
    PetscCall(print_other(comm, what, task, values));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!isnan(values->auc)) snprintf(auc, sizeof(auc), "  AUC %.5f", values->auc);
  PetscCall(PetscPrintf(comm,
                        "%-10s NE %.5f%s  AUPRC %.5f  accuracy %.5f  calibration %.4f  CTR %.5f  RMSE %.5f  "
                        "(%" PRId64 " sample%s)\n",
                        what, values->ne, auc, values->auprc, values->accuracy, values->calibration,
                        values->ctr, values->rmse, values->n_samples, TrsPlural(values->n_samples, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print the NE of the first segments, and the segment with the largest NE. The results hold all. */
static PetscErrorCode print_segments(MPI_Comm comm, const TrsGroupValues *values)
{
  enum { TRS_SHOWN = 8 };
  int worst = -1;

  PetscFunctionBegin;
  if (values->n_segments == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(comm, "%-10s NE of segments 0 ..:", ""));
  for (int i = 0; i < values->n_segments; i++) {
    const double ne = values->segment_ne[i];

    if (i < TRS_SHOWN) PetscCall(PetscPrintf(comm, isnan(ne) ? " -" : " %.5g", ne));
    if (!isnan(ne) && (worst < 0 || ne > values->segment_ne[worst])) worst = i;
  }
  PetscCall(PetscPrintf(comm, values->n_segments > TRS_SHOWN ? " ..." : ""));
  if (worst >= 0)
    PetscCall(PetscPrintf(comm, "  (worst: %d of %d, %.0f sample%s)", worst, values->n_segments,
                          values->segment_samples[worst],
                          TrsPlural((int64_t)values->segment_samples[worst], "s")));
  PetscCall(PetscPrintf(comm, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print the groups' metrics, if any, and the number of groups that counted. */
static PetscErrorCode print_groups(MPI_Comm comm, const char *what, const TrsGroupValues *values)
{
  PetscFunctionBegin;
  if (values->n_at == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(comm,
                        "%-10s %" PRId64 " group%s: GAUC %.5f  NE %.5f (%" PRId64
                        " group%s with both classes)  MSE %.5f  MAE %.5f",
                        what, values->n_groups, TrsPlural(values->n_groups, "s"), values->gauc, values->ne,
                        values->n_both, TrsPlural(values->n_both, "s"), values->mse, values->mae));
  for (int k = 0; k < values->n_at; k++)
    PetscCall(PetscPrintf(comm, "\n%-10s @%" PRId64 ": NDCG %.5f  recall %.5f  hit rate %.5f  precision %.5f",
                          "", values->at[k], values->ndcg[k], values->recall[k], values->hit_rate[k],
                          values->precision[k]));
  PetscCall(PetscPrintf(comm, " (%" PRId64 " group%s with a positive)\n", values->n_positive,
                        TrsPlural(values->n_positive, "s")));
  PetscCall(print_segments(comm, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The name of a task's line: "eval", or "eval, click" if there are several tasks. */
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

    PetscCall(report_running(comm, what, &tasks->task[t], &values[t].window));
    PetscCall(print_groups(comm, "in groups", &values[t].window.groups));
    what = name_line(tasks, t, "lifetime", text, sizeof(text));
    PetscCall(report_running(comm, what, &tasks->task[t], &values[t].lifetime));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode report_task(MPI_Comm comm, const char *what, const TrsTaskConfig *task,
                                  const TrsMetricValues *values)
{
  char name[2 * TRS_TASK_NAME];

  PetscFunctionBegin;
  snprintf(name, sizeof(name), "%.120s:", what);
  if (values->n_samples == 0)
    PetscCall(PetscPrintf(comm, "%s no sample has a label\n", name));
  else if (task->labels != TRS_LABEL_PROBABILITY)
    PetscCall(print_other(comm, name, task, values));
  else
    PetscCall(PetscPrintf(
        comm, "%s loss %.5f  AUC %.5f  NE %.5f  accuracy %.5f  calibration %.4f  (%" PRId64 " sample%s)\n",
        name, values->loss, values->auc, values->ne, values->accuracy, values->calibration, values->n_samples,
        TrsPlural(values->n_samples, "s")));
  PetscCall(print_groups(comm, "groups", &values->groups));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReportMetrics(MPI_Comm comm, const char *what, const TrsTaskConfigs *tasks,
                                const TrsMetricValues *values)
{
  char text[2 * TRS_TASK_NAME];

  PetscFunctionBegin;
  for (int t = 0; t < tasks->n; t++)
    PetscCall(report_task(comm, name_line(tasks, t, what, text, sizeof(text)), &tasks->task[t], &values[t]));
  if (tasks->n > 1)
    PetscCall(PetscPrintf(comm, "%s: loss %.5f, the sum of the tasks' losses by their weights\n", what,
                          TrsTaskLoss(tasks, values)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
