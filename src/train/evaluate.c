/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/evaluate.h"

#include "core/events.h"

/* The next batch on all ranks, or the same error on all: the reader's, or `ierr`, of what was done with the last batch. */
static PetscErrorCode fetch(MPI_Comm comm, TrsReader reader, PetscErrorCode ierr, TrsBatch **batch)
{
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_IO, &before));
  *batch = NULL;
  if (ierr == PETSC_SUCCESS) ierr = TrsReaderNext(reader, batch);
  PetscCall(TrsAgree(comm, ierr));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsEvaluate(MPI_Comm comm, TrsModelParallel model, TrsReader reader, TrsResults results,
                           int64_t n_total, const TrsEvaluateObserver *observer, TrsMetricValues *values)
{
  const int slot = TRS_EVALUATION_SLOT;
  PetscErrorCode ierr = PETSC_SUCCESS;
  TrsMetrics metrics;
  TrsBatch *batch;

  PetscFunctionBegin;
  PetscCall(TrsMetricsCreate(comm, PETSC_TRUE, &metrics));
  PetscCall(fetch(comm, reader, ierr, &batch));
  while (batch) {
    const double start_s = MPI_Wtime();
    const float *predictions;
    double loss_sum;
    PetscCall(TrsModelParallelInputDistStart(model, slot, batch));
    PetscCall(TrsModelParallelInputDistTensors(model, slot));
    PetscCall(TrsModelParallelInputDistWait(model, slot));
    PetscCall(TrsModelParallelForward(model, slot, batch, &loss_sum, &predictions));
    if (observer) ierr = observer->batch(observer->context, batch, predictions, MPI_Wtime() - start_s);
    if (batch->labels)
      PetscCall(TrsMetricsAdd(metrics, batch->batch, predictions, batch->labels, NULL, loss_sum));
    if (results)
      PetscCall(TrsResultsAddPredictions(results, n_total, batch->first, batch->batch, predictions));
    PetscCall(TrsReaderReturn(reader, &batch));
    PetscCall(fetch(comm, reader, ierr, &batch));
  }
  PetscCall(TrsMetricsCompute(metrics, values));
  PetscCall(TrsMetricsDestroy(&metrics));
  PetscFunctionReturn(PETSC_SUCCESS);
}
