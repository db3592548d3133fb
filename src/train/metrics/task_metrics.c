/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/task_metrics.h"

#include <math.h>

/* --- the samples of a task --- */

/* The samples of a batch that have the label of a task, host. */
typedef struct {
  int64_t n;
  const float *predictions, *labels, *weights; /* [n] as TrsMetricsAdd() takes them */
  const int64_t *group;                        /* [n] or NULL */
} TrsTaskSamples;

/* Memory for the samples of a task. Starts as zeros. */
typedef struct {
  TrsBuffer predictions, labels, weights, group;
} TrsTaskScratch;

/* What metrics of the task measure. */
static TrsMetricKind kind_of(const TrsTaskConfig *task)
{
  return (TrsMetricKind){.labels = task->labels, .loss = task->loss, .huber_delta = task->huber_delta};
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
                                   const float *predictions, TrsTaskScratch *scratch, TrsTaskSamples *samples)
{
  const TrsTaskConfig *task = &tasks->task[t];
  const int64_t bytes = batch->batch * (int64_t)sizeof(float);
  float *p, *y, *w;
  int64_t *group, n = 0;

  PetscFunctionBegin;
  *samples = (TrsTaskSamples){batch->batch, predictions, batch->labels, batch->weights, batch->group};
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
    n++;
  }
  *samples = (TrsTaskSamples){n, p, y, batch->weights ? w : NULL, batch->group ? group : NULL};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_scratch(TrsTaskScratch *scratch)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferFree(&scratch->predictions));
  PetscCall(TrsBufferFree(&scratch->labels));
  PetscCall(TrsBufferFree(&scratch->weights));
  PetscCall(TrsBufferFree(&scratch->group));
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
    const TrsMetricKind kind = kind_of(&tasks->task[t]);

    PetscCall(TrsMetricsCreate(comm, &kind, PETSC_TRUE, &m->metrics[t]));
    if (options && kind.labels == TRS_LABEL_PROBABILITY)
      PetscCall(TrsGroupMetricsCreate(comm, options, 0, &m->groups[t]));
  }
  *metrics = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskMetricsAdd(TrsTaskMetrics m, const TrsBatch *batch, const float *predictions,
                                 const double *losses)
{
  TrsTaskSamples s;

  PetscFunctionBegin;
  for (int t = 0; t < m->tasks->n; t++) {
    PetscCall(take_samples(m->tasks, t, batch, predictions, &m->scratch, &s));
    PetscCall(TrsMetricsAdd(m->metrics[t], s.n, s.predictions, s.labels, s.weights, losses[t]));
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
  TrsBuffer kept; /* the numbers of all tasks for a checkpoint */
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
    const TrsMetricKind kind = kind_of(&tasks->task[t]);

    PetscCall(TrsRunningMetricsCreate(comm, &kind, kind.labels == TRS_LABEL_PROBABILITY ? options : NULL,
                                      window_samples, &m->metrics[t]));
  }
  *metrics = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskRunningAdd(TrsTaskRunning m, const TrsBatch *batch, const float *predictions)
{
  TrsTaskSamples s;

  PetscFunctionBegin;
  for (int t = 0; t < m->tasks->n; t++) {
    PetscCall(take_samples(m->tasks, t, batch, predictions, &m->scratch, &s));
    PetscCall(TrsRunningMetricsAdd(m->metrics[t], s.n, s.predictions, s.labels, s.weights, s.group));
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

PetscErrorCode TrsTaskRunningSave(TrsTaskRunning m, int *n, double **numbers)
{
  double *of_task;

  PetscFunctionBegin;
  for (int t = 0; t < m->tasks->n; t++) {
    PetscCall(TrsRunningMetricsSave(m->metrics[t], n, &of_task));
    PetscCall(TrsBufferReserve(&m->kept, (int64_t)m->tasks->n * *n * (int64_t)sizeof(double), PETSC_TRUE));
    PetscCall(PetscArraycpy((double *)m->kept.data + (int64_t)t * *n, of_task, (size_t)*n));
  }
  *n *= m->tasks->n;
  *numbers = (double *)m->kept.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTaskRunningLoad(TrsTaskRunning m, const char *path, int n, const double *numbers)
{
  const int of_task = n / m->tasks->n;

  PetscFunctionBegin;
  PetscCheck(n == of_task * m->tasks->n, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute metrics has %d sums of metrics, which are not those of %d tasks", path, n,
             m->tasks->n);
  for (int t = 0; t < m->tasks->n; t++)
    PetscCall(TrsRunningMetricsLoad(m->metrics[t], path, of_task, numbers + (int64_t)t * of_task));
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
  PetscCall(PetscFree(m->metrics));
  PetscCall(PetscFree(*metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}
