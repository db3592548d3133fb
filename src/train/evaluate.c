/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/evaluate.h"

typedef struct {
  TrsMetrics metrics;
  TrsGroupMetrics groups; /* may be NULL */
  TrsResults results;     /* NULL if predictions are not kept */
  int64_t n_total;
  const TrsBatchObserver *observer; /* may be NULL */
} TrsEvaluation;

/* Keep the predictions of a batch, and beside them what tells its samples apart. Collective. */
static PetscErrorCode keep_samples(const TrsEvaluation *e, const TrsBatch *batch, const float *predictions)
{
  const int64_t first = batch->first, n = batch->batch;

  PetscFunctionBegin;
  PetscCall(TrsResultsAddPredictions(e->results, e->n_total, first, n, predictions));
  if (batch->group)
    PetscCall(TrsResultsAddSampleInts(e->results, "group", e->n_total, first, n, batch->group));
  if (batch->time) PetscCall(TrsResultsAddSampleInts(e->results, "time", e->n_total, first, n, batch->time));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A TrsBatchObserver. */
static PetscErrorCode after_batch(void *context, const TrsBatch *batch, const float *predictions,
                                  double loss_sum, double seconds)
{
  const TrsEvaluation *e = (const TrsEvaluation *)context;
  PetscErrorCode ierr = PETSC_SUCCESS; /* this rank's error; predictions are gathered in any case */

  PetscFunctionBegin;
  if (e->observer) ierr = e->observer->batch(e->observer->context, batch, predictions, loss_sum, seconds);
  if (!ierr && batch->labels)
    ierr = TrsMetricsAdd(e->metrics, batch->batch, predictions, batch->labels, batch->weights, loss_sum);
  if (!ierr && batch->labels)
    ierr = TrsGroupMetricsAdd(e->groups, batch->batch, predictions, batch->labels, batch->weights,
                              batch->group);
  if (e->results) PetscCall(keep_samples(e, batch, predictions));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEvaluate(TrsComm control, TrsOptions options, TrsModelParallel model, TrsReader reader,
                           const TrsEvaluationTarget *target, const TrsBatchObserver *observer,
                           const volatile int *stop, TrsMetricValues *values, PetscBool *stopped)
{
  TrsEvaluation e = {
      .groups = target->groups, .results = target->results, .n_total = target->n_total, .observer = observer};
  const TrsBatchObserver mine = {after_batch, &e};
  PetscBool more = PETSC_TRUE;
  TrsStepResult result = {.stop = PETSC_FALSE};
  TrsPipeline pipeline;

  PetscFunctionBegin;
  PetscCall(TrsMetricsCreate(control->mpi, PETSC_TRUE, &e.metrics));
  PetscCall(TrsPipelineCreateEvaluation(control, options, model, reader, stop, &pipeline));
  PetscCall(TrsPipelineSetObserver(pipeline, &mine));
  while (more && !result.stop) PetscCall(TrsPipelineProgress(pipeline, &result, &more));
  PetscCall(TrsPipelineDestroy(&pipeline));
  *stopped = result.stop;
  if (!*stopped) {
    PetscCall(TrsMetricsCompute(e.metrics, values));
    PetscCall(TrsGroupMetricsCompute(e.groups, &values->groups));
  }
  PetscCall(TrsMetricsDestroy(&e.metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}
