/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/task_metrics.h"

#include <math.h>

/* --- the samples of a task --- */

/* Memory for a task's samples. Starts as zeros. */
typedef struct {
  TrsBuffer predictions, labels, weights, group, place;
} TrsTaskScratch;

/* Find the kind of a task's metrics. options NULL: the kind for a plain training. */
static PetscErrorCode find_kind(const TrsTaskConfig *task, TrsOptions options, TrsMetricKind *kind)
{
  PetscFunctionBegin;
  *kind = (TrsMetricKind){.labels = task->labels, .loss = task->loss, .huber_delta = task->huber_delta};
  if (options) PetscCall(TrsOptionsGetBool(options, "-reproducible", &kind->exact, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskMetricsCheck(const TrsTaskConfigs *tasks, TrsOptions options)
{
  PetscBool any = PETSC_FALSE;
  const char *group = NULL;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-metrics_group", &group, NULL));
  for (int t = 0; t < tasks->n; t++) any = (PetscBool)(any || tasks->task[t].loss == TRS_LOSS_BCE);
  if (group && !any)
    PetscCall(TrsOptionError(options, "-metrics_group", "needs a task of -tasks with loss bce"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

double TrsTaskLoss(const TrsTaskConfigs *tasks, const TrsMetricValues *values)
{
  double loss = 0.0;

  for (int t = 0; t < tasks->n; t++) loss += tasks->task[t].weight * values[t].loss;
  return loss;
}

/* Get a sample's prediction and label for the metrics (train/metrics/metric_sums.h). */
static void take_sample(const TrsTaskConfig *task, const float *row, float y, float *prediction, float *label)
{
  int most = 0;

  *prediction = row[0];
  *label = y;
  if (task->labels != TRS_LABEL_CLASS) return;
  for (int c = 1; c < task->classes; c++)
    if (row[c] > row[most]) most = c;
  *prediction = row[(int)y];
  *label = most == (int)y ? 1.0F : 0.0F;
}

/*
  Select task t's samples from a batch. They are borrowed from the batch and from the scratch memory
  until the next call.
*/
static PetscErrorCode take_samples(const TrsTaskConfigs *tasks, int t, const TrsBatch *batch,
                                   const float *predictions, TrsTaskScratch *scratch,
                                   TrsMetricSamples *samples)
{
  const TrsTaskConfig *task = &tasks->task[t];
  const int64_t bytes = batch->batch * (int64_t)sizeof(float);
  float *p, *y, *w;
  int64_t *group, *place, n = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&scratch->place, 2 * bytes, PETSC_FALSE));
  place = (int64_t *)scratch->place.data;
  for (int64_t b = 0; b < batch->batch; b++) place[b] = batch->first - batch->position + b;
  *samples = (TrsMetricSamples){batch->batch,   predictions,  batch->labels,
                                batch->weights, batch->group, place};
  if (!tasks->named) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsBufferReserve(&scratch->predictions, bytes, PETSC_FALSE));
  PetscCall(TrsBufferReserve(&scratch->labels, bytes, PETSC_FALSE));
  if (batch->weights) PetscCall(TrsBufferReserve(&scratch->weights, bytes, PETSC_FALSE));
  if (batch->group) PetscCall(TrsBufferReserve(&scratch->group, 2 * bytes, PETSC_FALSE));
  p = (float *)scratch->predictions.data;
  y = (float *)scratch->labels.data;
  w = (float *)scratch->weights.data;
  group = (int64_t *)scratch->group.data;
  for (int64_t b = 0; b < batch->batch; b++) {
    const float label = batch->labels[b * tasks->n + t];

    if (isnan(label)) continue;
    if (task->labels == TRS_LABEL_CLASS && !(label >= 0.0F && label < (float)task->classes)) continue;
    take_sample(task, predictions + b * tasks->columns + task->column, label, &p[n], &y[n]);
    if (batch->weights) w[n] = batch->weights[b];
    if (batch->group) group[n] = batch->group[b];
    place[n] = place[b];
    n++;
  }
  *samples = (TrsMetricSamples){n, p, y, batch->weights ? w : NULL, batch->group ? group : NULL, place};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_scratch(TrsTaskScratch *scratch)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferFree(&scratch->predictions));
  PetscCall(TrsBufferFree(&scratch->labels));
  PetscCall(TrsBufferFree(&scratch->weights));
  PetscCall(TrsBufferFree(&scratch->group));
  PetscCall(TrsBufferFree(&scratch->place));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- metrics of an evaluation --- */

struct TrsTaskMetricsImpl {
  const TrsTaskConfigs *tasks;
  TrsMetrics *metrics;     /* [tasks] */
  TrsGroupMetrics *groups; /* [tasks], each NULL if not wanted */
  TrsTaskScratch scratch;
};

PetscErrorCode TrsTaskMetricsCreate(MPI_Comm comm, const TrsTaskConfigs *tasks, TrsOptions options,
                                    TrsTaskMetrics *metrics)
{
  TrsTaskMetrics m;

  PetscFunctionBegin;
  PetscCall(PetscNew(&m));
  m->tasks = tasks;
  PetscCall(PetscCalloc2((size_t)tasks->n, &m->metrics, (size_t)tasks->n, &m->groups));
  for (int t = 0; t < tasks->n; t++) {
    TrsMetricKind kind;

    PetscCall(find_kind(&tasks->task[t], options, &kind));
    PetscCall(TrsMetricsCreate(comm, &kind, PETSC_TRUE, &m->metrics[t]));
    if (options && kind.labels == TRS_LABEL_PROBABILITY)
      PetscCall(TrsGroupMetricsCreate(comm, options, 0, &m->groups[t]));
  }
  *metrics = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskMetricsAdd(TrsTaskMetrics m, const TrsBatch *batch, const float *predictions,
                                 int64_t n_losses, const double *losses)
{
  TrsMetricSamples s;

  PetscFunctionBegin;
  for (int t = 0; t < m->tasks->n; t++) {
    PetscCall(take_samples(m->tasks, t, batch, predictions, &m->scratch, &s));
    PetscCall(TrsMetricsAdd(m->metrics[t], s.n, s.predictions, s.labels, s.weights));
    TrsMetricsAddLosses(m->metrics[t], n_losses, losses + t, m->tasks->n);
    PetscCall(TrsGroupMetricsAdd(m->groups[t], s.n, s.predictions, s.labels, s.weights, s.group));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskMetricsCompute(TrsTaskMetrics m, TrsMetricValues *values)
{
  PetscFunctionBegin;
  for (int t = 0; t < m->tasks->n; t++) {
    PetscCall(TrsMetricsCompute(m->metrics[t], &values[t]));
    PetscCall(TrsGroupMetricsCompute(m->groups[t], &values[t].groups));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskMetricsDestroy(TrsTaskMetrics *metrics)
{
  TrsTaskMetrics m = *metrics;

  PetscFunctionBegin;
  if (!m) PetscFunctionReturn(PETSC_SUCCESS);
  for (int t = 0; t < m->tasks->n; t++) {
    PetscCall(TrsMetricsDestroy(&m->metrics[t]));
    PetscCall(TrsGroupMetricsDestroy(&m->groups[t]));
  }
  PetscCall(free_scratch(&m->scratch));
  PetscCall(PetscFree2(m->metrics, m->groups));
  PetscCall(PetscFree(*metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- metrics of a training --- */

struct TrsTaskRunningImpl {
  const TrsTaskConfigs *tasks;
  TrsRunningMetrics *metrics; /* [tasks] */
  TrsTaskScratch scratch;
  TrsBuffer kept, kept_exact, kept_window; /* all tasks' numbers for a checkpoint */
};

PetscErrorCode TrsTaskRunningCreate(MPI_Comm comm, const TrsTaskConfigs *tasks, TrsOptions options,
                                    int64_t window_samples, TrsTaskRunning *metrics)
{
  TrsTaskRunning m;

  PetscFunctionBegin;
  PetscCall(PetscNew(&m));
  m->tasks = tasks;
  PetscCall(PetscCalloc1((size_t)tasks->n, &m->metrics));
  for (int t = 0; t < tasks->n; t++) {
    TrsMetricKind kind;

    PetscCall(find_kind(&tasks->task[t], options, &kind));
    PetscCall(TrsRunningMetricsCreate(comm, &kind, kind.labels == TRS_LABEL_PROBABILITY ? options : NULL,
                                      window_samples, &m->metrics[t]));
  }
  *metrics = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskRunningAdd(TrsTaskRunning m, const TrsBatch *batch, const float *predictions)
{
  TrsMetricSamples s;

  PetscFunctionBegin;
  for (int t = 0; t < m->tasks->n; t++) {
    PetscCall(take_samples(m->tasks, t, batch, predictions, &m->scratch, &s));
    PetscCall(TrsRunningMetricsAdd(m->metrics[t], &s));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskRunningStep(TrsTaskRunning m, int64_t global_batch, double now_s)
{
  PetscFunctionBegin;
  for (int t = 0; t < m->tasks->n; t++) PetscCall(TrsRunningMetricsStep(m->metrics[t], global_batch, now_s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskRunningCompute(TrsTaskRunning m, TrsRunningValues *values)
{
  PetscFunctionBegin;
  for (int t = 0; t < m->tasks->n; t++) PetscCall(TrsRunningMetricsCompute(m->metrics[t], &values[t]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Limit on the numbers of all windows in a checkpoint: 128 MiB. io/hdf5_attribute.c has the same
  limit.
*/
enum { TRS_MOST_IN_WINDOWS = 1 << 24 };

/* Append a task's n numbers to the *total numbers of the tasks before it. */
static PetscErrorCode keep(TrsBuffer *kept, int n, const double *numbers, int *total)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(kept, ((int64_t)*total + n) * (int64_t)sizeof(double), PETSC_TRUE));
  if (n) PetscCall(PetscArraycpy((double *)kept->data + *total, numbers, (size_t)n));
  *total += n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskRunningSave(TrsTaskRunning m, TrsTaskRunningNumbers *numbers)
{
  const int64_t most = TRS_MOST_IN_WINDOWS / m->tasks->n;
  double *of_task;
  int n;

  PetscFunctionBegin;
  *numbers = (TrsTaskRunningNumbers){.n = 0};
  for (int t = 0; t < m->tasks->n; t++) {
    PetscCall(TrsRunningMetricsSave(m->metrics[t], &n, &of_task));
    PetscCall(keep(&m->kept, n, of_task, &numbers->n));
    PetscCall(TrsRunningMetricsSaveExact(m->metrics[t], &n, &of_task));
    PetscCall(keep(&m->kept_exact, n, of_task, &numbers->n_exact));
    PetscCall(TrsRunningMetricsSaveWindow(m->metrics[t], most, &n, &of_task));
    PetscCall(keep(&m->kept_window, n, of_task, &numbers->n_window));
  }
  numbers->value = (double *)m->kept.data;
  numbers->exact = (double *)m->kept_exact.data;
  numbers->window = (double *)m->kept_window.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Distribute a checkpoint's numbers to the tasks. */
static PetscErrorCode load(TrsTaskRunning m, const char *path, const char *attribute, int n,
                           const double *numbers,
                           PetscErrorCode (*of_task)(TrsRunningMetrics, const char *, int, const double *))
{
  const int each = n / m->tasks->n;

  PetscFunctionBegin;
  PetscCheck(n == each * m->tasks->n, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s has %d sums of metrics, which are not those of %d tasks", path, attribute, n,
             m->tasks->n);
  for (int t = 0; t < m->tasks->n; t++)
    PetscCall(of_task(m->metrics[t], path, each, numbers + (int64_t)t * each));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskRunningLoad(TrsTaskRunning m, const char *path, const TrsTaskRunningNumbers *numbers)
{
  PetscFunctionBegin;
  PetscCall(load(m, path, "metrics", numbers->n, numbers->value, TrsRunningMetricsLoad));
  if (numbers->n_exact)
    PetscCall(load(m, path, "metrics_exact", numbers->n_exact, numbers->exact, TrsRunningMetricsLoadExact));
  for (int t = 0, at = 0, used; t < m->tasks->n && numbers->n_window; t++, at += used)
    PetscCall(TrsRunningMetricsLoadWindow(m->metrics[t], path, numbers->n_window - at, numbers->window + at,
                                          &used));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskRunningDestroy(TrsTaskRunning *metrics)
{
  TrsTaskRunning m = *metrics;

  PetscFunctionBegin;
  if (!m) PetscFunctionReturn(PETSC_SUCCESS);
  for (int t = 0; t < m->tasks->n; t++) PetscCall(TrsRunningMetricsDestroy(&m->metrics[t]));
  PetscCall(free_scratch(&m->scratch));
  PetscCall(TrsBufferFree(&m->kept));
  PetscCall(TrsBufferFree(&m->kept_exact));
  PetscCall(TrsBufferFree(&m->kept_window));
  PetscCall(PetscFree(m->metrics));
  PetscCall(PetscFree(*metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}
