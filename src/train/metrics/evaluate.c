/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/metrics/evaluate.h"

#include <string.h>

struct TrsEvaluationImpl {
  const TrsTaskConfigs *tasks;
  TrsModelParallel model;
  TrsTaskMetrics metrics;
  TrsBuffer column;   /* one task's predictions */
  TrsResults results; /* NULL if predictions are not kept */
  int64_t n_total;
  TrsBatchObserver observer; /* its function may be NULL */
  TrsPipeline pipeline;
};

/* With several tasks, keep each task's predictions. Collective. */
static PetscErrorCode keep_tasks(TrsEvaluation e, const TrsBatch *batch, const float *predictions)
{
  PetscFunctionBegin;
  for (int t = 0; t < e->tasks->n; t++) {
    const TrsTaskConfig *task = &e->tasks->task[t];
    char path[TRS_TASK_NAME + 16];
    float *to;

    PetscCall(
        TrsBufferReserve(&e->column, batch->batch * task->classes * (int64_t)sizeof(float), PETSC_FALSE));
    to = (float *)e->column.data;
    for (int64_t b = 0; b < batch->batch; b++)
      memcpy(to + b * task->classes, predictions + b * e->tasks->columns + task->column,
             (size_t)task->classes * sizeof(float));
    PetscCall(PetscSNPrintf(path, sizeof(path), "predictions/%s", task->name));
    if (task->classes == 1)
      PetscCall(TrsResultsAddPredictions(e->results, path, e->n_total, batch->first, batch->batch, to));
    else
      PetscCall(
          TrsResultsAddRows(e->results, path, e->n_total, batch->first, batch->batch, task->classes, to));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Keep a batch's predictions, together with the data that identifies its samples. Collective. */
static PetscErrorCode keep_samples(TrsEvaluation e, const TrsBatch *batch, const float *predictions)
{
  const int64_t first = batch->first, n = batch->batch;

  PetscFunctionBegin;
  if (e->tasks->columns == 1)
    PetscCall(TrsResultsAddPredictions(e->results, "predictions", e->n_total, first, n, predictions));
  else
    PetscCall(keep_tasks(e, batch, predictions));
  if (batch->group)
    PetscCall(TrsResultsAddSampleInts(e->results, "group", e->n_total, first, n, batch->group));
  if (batch->time) PetscCall(TrsResultsAddSampleInts(e->results, "time", e->n_total, first, n, batch->time));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A TrsBatchObserver. */
static PetscErrorCode after_batch(void *context, const TrsBatch *batch, const float *predictions,
                                  const double *losses, double seconds)
{
  const TrsEvaluation e = (TrsEvaluation)context;
  /* this rank's error; predictions are gathered even after an error */
  PetscErrorCode ierr = PETSC_SUCCESS;
  const double *parts = losses;
  int64_t n_parts = 1;

  PetscFunctionBegin;
  if (e->observer.batch) ierr = e->observer.batch(e->observer.context, batch, predictions, losses, seconds);
  TrsModelParallelLossParts(e->model, &n_parts, &parts);
  if (!ierr && batch->labels) ierr = TrsTaskMetricsAdd(e->metrics, batch, predictions, n_parts, parts);
  if (e->results) PetscCall(keep_samples(e, batch, predictions));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEvaluationCreate(TrsComm control, TrsOptions options, TrsModelParallel model,
                                   TrsReader reader, const TrsEvaluationTarget *target,
                                   const TrsBatchObserver *observer, const volatile int *stop,
                                   TrsEvaluation *evaluation)
{
  TrsBatchObserver mine = {.batch = after_batch};
  TrsEvaluation e;

  PetscFunctionBegin;
  PetscCall(PetscNew(&e));
  e->model = model;
  e->tasks = TrsModelParallelTasks(model);
  e->results = target->results;
  e->n_total = target->n_total;
  if (observer) e->observer = *observer;
  *evaluation = e;
  mine.context = e;
  PetscCall(TrsTaskMetricsCreate(control->mpi, e->tasks, target->metrics, &e->metrics));
  PetscCall(TrsPipelineCreateEvaluation(control, options, model, reader, stop, &e->pipeline));
  PetscCall(TrsPipelineSetObserver(e->pipeline, &mine));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEvaluationRun(TrsEvaluation e, TrsMetricValues *values, PetscBool *stopped)
{
  PetscBool more = PETSC_TRUE;
  TrsStepResult result = {.stop = PETSC_FALSE};

  PetscFunctionBegin;
  while (more && !result.stop) PetscCall(TrsPipelineProgress(e->pipeline, &result, &more));
  *stopped = result.stop;
  if (!*stopped) PetscCall(TrsTaskMetricsCompute(e->metrics, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEvaluationDestroy(TrsEvaluation *evaluation)
{
  const TrsEvaluation e = *evaluation;

  PetscFunctionBegin;
  if (!e) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPipelineDestroy(&e->pipeline));
  PetscCall(TrsTaskMetricsDestroy(&e->metrics));
  PetscCall(TrsBufferFree(&e->column));
  PetscCall(PetscFree(*evaluation));
  PetscFunctionReturn(PETSC_SUCCESS);
}
