/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/pipeline.h"

#include "core/events.h"

/* What the ranks agree on in a step: sums over ranks. */
typedef enum {
  TRS_AGREE_LOSS,
  TRS_AGREE_STOP,
  TRS_AGREE_ERROR,
  TRS_AGREE_BAD_IDS,
  TRS_AGREE_BAD_NUMBERS,
  TRS_N_AGREE
} TrsAgreement;

/* Batches in hand: the one to compute, the next, and towards the end of a step the one after. */
enum { TRS_IN_HAND = 3 };

typedef struct {
  const char *name;
  /* NULL where nothing runs ahead: start what a first step finds begun, for the two batches in hand */
  PetscErrorCode (*fill)(TrsPipeline pipeline);
  PetscErrorCode (*progress)(TrsPipeline pipeline, TrsStepResult *result);
  /* end what a last step left begun, when training is left early */
  PetscErrorCode (*drain)(TrsPipeline pipeline);
} TrsPipelineOps;

struct TrsPipelineImpl {
  const TrsPipelineOps *ops;
  TrsComm control;
  TrsModelParallel model;
  TrsReader reader;
  TrsRunningMetrics metrics; /* NULL: none */
  const float *predictions;  /* of batch[0], once its loss is there */
  int64_t first_update;
  const volatile int *stop;
  PetscBool filled;
  PetscErrorCode fetch_error; /* of this rank's reader, to be agreed on */
  TrsBatch *batch[TRS_IN_HAND];
  int slot; /* of batch[0]; slots are taken in turn */
  double mine[TRS_N_AGREE], sum[TRS_N_AGREE];
  TrsSum agreement;
};

static const TrsOptionSpec pipeline_specs[] = {
    {"-pipeline", TRS_OPTION_ENUM, "sparse_dist", NULL, "base,sparse_dist,prefetch_sparse_dist", NULL,
     "what overlaps: nothing; the next batch's input dist; also the fill of caches (fused_uvm_caching, lru) "
     "with its rows"},
};
const TrsOptionGroup trs_pipeline_options = TRS_OPTION_GROUP("Pipeline", pipeline_specs);

/* The reader's next batch into place i; a failure is kept until the ranks agree on it. */
static PetscErrorCode fetch(TrsPipeline p, int i)
{
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_IO, &before));
  p->batch[i] = NULL;
  if (!p->fetch_error) p->fetch_error = TrsReaderNext(p->reader, &p->batch[i]);
  PetscCall(TrsStageSwitch(before, NULL));
  if (p->batch[i]) PetscCall(TrsModelParallelCopyStart(p->model, p->batch[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Two are enough where a backward has ended when it returns; a third, where it goes on, lets the next input dist start under it. */
static int next_slot(TrsPipeline p)
{
  return (p->slot + 1) % (TrsModelParallelIsAsynchronous(p->model) ? TRS_TRAINING_SLOTS : 2);
}

/* Forward of batch 0, whose input dist is done. */
static PetscErrorCode forward(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(
      TrsModelParallelForward(p->model, p->slot, p->batch[0], NULL, p->metrics ? &p->predictions : NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode agreement_start(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(TrsModelParallelLoss(p->model, &p->mine[TRS_AGREE_LOSS]));
  if (p->metrics)
    PetscCall(TrsRunningMetricsAdd(p->metrics, p->batch[0]->batch, p->predictions, p->batch[0]->labels));
  p->mine[TRS_AGREE_STOP] = *p->stop != 0;
  p->mine[TRS_AGREE_ERROR] = p->fetch_error != 0;
  p->mine[TRS_AGREE_BAD_IDS] = (double)p->batch[0]->bad_ids;
  p->mine[TRS_AGREE_BAD_NUMBERS] = (double)p->batch[0]->bad_numbers;
  PetscCall(TrsCommSumStart(p->control, TRS_N_AGREE, p->mine, p->sum, &p->agreement));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The bad id of the lowest rank that has one, to all ranks. */
static PetscErrorCode share_bad_id(TrsPipeline p, TrsBadId *bad)
{
  int first = p->batch[0]->bad_ids ? p->control->rank : p->control->size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, p->control->mpi));
  *bad = p->batch[0]->first_bad;
  PetscCallMPI(MPI_Bcast(bad, (int)sizeof(*bad), MPI_BYTE, first, p->control->mpi));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode agreement_wait(TrsPipeline p, TrsStepResult *result)
{
  const TrsBatch *batch = p->batch[0];

  PetscFunctionBegin;
  PetscCall(TrsCommSumWait(&p->agreement));
  if (p->sum[TRS_AGREE_ERROR] > 0) PetscCall(TrsAgree(p->control->mpi, p->fetch_error));
  *result = (TrsStepResult){.step = batch->step,
                            .epoch = batch->epoch,
                            .global_batch = batch->global_batch,
                            .position = batch->position,
                            .loss = p->sum[TRS_AGREE_LOSS] / (double)batch->global_batch,
                            .stop = (PetscBool)(p->sum[TRS_AGREE_STOP] > 0),
                            .bad_ids = (int64_t)p->sum[TRS_AGREE_BAD_IDS],
                            .bad_numbers = (int64_t)p->sum[TRS_AGREE_BAD_NUMBERS]};
  if (result->bad_ids) PetscCall(share_bad_id(p, &result->first_bad));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(TrsModelParallelBackward(p->model, p->slot, p->batch[0], p->first_update + p->batch[0]->step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Batch 0 is done: give it back, the next ones move up. */
static PetscErrorCode advance(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(TrsReaderReturn(p->reader, &p->batch[0]));
  for (int i = 1; i < TRS_IN_HAND; i++) p->batch[i - 1] = p->batch[i];
  p->batch[TRS_IN_HAND - 1] = NULL;
  p->slot = next_slot(p);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* From the forward on: the backward, and under it what the ranks agree on. */
static PetscErrorCode finish_step(TrsPipeline p, TrsStepResult *result)
{
  const PetscBool loss_is_late = TrsModelParallelIsAsynchronous(p->model);

  PetscFunctionBegin;
  if (!loss_is_late) PetscCall(agreement_start(p));
  PetscCall(backward(p));
  if (loss_is_late) PetscCall(agreement_start(p));
  PetscCall(agreement_wait(p, result));
  PetscCall(advance(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A batch's ids on their way. */
static PetscErrorCode start_ids(TrsPipeline p, int slot, const TrsBatch *batch)
{
  PetscFunctionBegin;
  PetscCall(TrsModelParallelInputDistStart(p->model, slot, batch));
  PetscCall(TrsModelParallelInputDistTensors(p->model, slot));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode progress_base(TrsPipeline p, TrsStepResult *result)
{
  PetscFunctionBegin;
  PetscCall(start_ids(p, p->slot, p->batch[0]));
  PetscCall(TrsModelParallelInputDistWait(p->model, p->slot));
  PetscCall(forward(p));
  PetscCall(backward(p));
  PetscCall(fetch(p, 1));
  PetscCall(agreement_start(p));
  PetscCall(agreement_wait(p, result));
  PetscCall(advance(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Batch 0's input dist is under way when this is called. */
static PetscErrorCode progress_sparse_dist(TrsPipeline p, TrsStepResult *result)
{
  PetscFunctionBegin;
  PetscCall(TrsModelParallelInputDistWait(p->model, p->slot));
  if (p->batch[1]) PetscCall(TrsModelParallelInputDistStart(p->model, next_slot(p), p->batch[1]));
  PetscCall(forward(p));
  if (p->batch[1]) {
    PetscCall(TrsModelParallelInputDistTensors(p->model, next_slot(p)));
    PetscCall(fetch(p, 2));
  }
  PetscCall(finish_step(p, result));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Batch 1's ids are under way when a step ends; its counts are not, because evaluations between steps exchange theirs (comm/shared_lanes.h). */
static PetscErrorCode start_next(TrsPipeline p)
{
  PetscFunctionBegin;
  if (p->batch[1]) PetscCall(start_ids(p, next_slot(p), p->batch[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Batch 0's input dist and cache fill are done or under way when this is called, and batch 1's ids. Its rows are brought in between batch 0's
  forward, whose lines they leave alone, and its update, which finds rows that have moved.
*/
static PetscErrorCode progress_prefetch(TrsPipeline p, TrsStepResult *result)
{
  PetscFunctionBegin;
  PetscCall(forward(p));
  if (p->batch[1]) {
    PetscCall(TrsModelParallelInputDistWait(p->model, next_slot(p)));
    PetscCall(TrsModelParallelPrefetch(p->model, next_slot(p)));
    PetscCall(fetch(p, 2));
  }
  PetscCall(finish_step(p, result));
  PetscCall(start_next(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fill_sparse_dist(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(start_ids(p, p->slot, p->batch[0]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fill_prefetch(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(fill_sparse_dist(p));
  PetscCall(TrsModelParallelInputDistWait(p->model, p->slot));
  PetscCall(TrsModelParallelPrefetch(p->model, p->slot));
  PetscCall(start_next(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode drain_sparse_dist(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(TrsModelParallelInputDistWait(p->model, p->slot));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode drain_prefetch(TrsPipeline p)
{
  PetscFunctionBegin;
  if (p->batch[1]) PetscCall(TrsModelParallelInputDistWait(p->model, next_slot(p)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const TrsPipelineOps pipelines[] = {
    {.name = "base", .progress = progress_base},
    {.name = "sparse_dist",
     .fill = fill_sparse_dist,
     .progress = progress_sparse_dist,
     .drain = drain_sparse_dist},
    {.name = "prefetch_sparse_dist",
     .fill = fill_prefetch,
     .progress = progress_prefetch,
     .drain = drain_prefetch},
};

PetscErrorCode TrsPipelineCreate(TrsComm control, TrsOptions options, TrsModelParallel model,
                                 TrsReader reader, int64_t first_update, const volatile int *stop,
                                 TrsPipeline *pipeline)
{
  TrsPipeline p;
  int kind;

  PetscFunctionBegin;
  PetscCall(PetscNew(&p));
  PetscCall(TrsOptionsGetEnum(options, "-pipeline", &kind, NULL));
  p->ops = &pipelines[kind];
  p->control = control;
  p->model = model;
  p->reader = reader;
  p->first_update = first_update;
  p->stop = stop;
  *pipeline = p;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPipelineSetMetrics(TrsPipeline pipeline, TrsRunningMetrics metrics)
{
  PetscFunctionBegin;
  pipeline->metrics = metrics;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The first batches: two in hand, and where input dists run ahead, the first one's under way. */
static PetscErrorCode fill(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(fetch(p, 0));
  PetscCall(TrsAgree(p->control->mpi, p->fetch_error));
  p->filled = PETSC_TRUE;
  if (!p->batch[0] || !p->ops->fill) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(fetch(p, 1));
  PetscCall(TrsAgree(p->control->mpi, p->fetch_error));
  PetscCall(p->ops->fill(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPipelineProgress(TrsPipeline pipeline, TrsStepResult *result, PetscBool *more)
{
  PetscFunctionBegin;
  if (!pipeline->filled) PetscCall(fill(pipeline));
  *more = (PetscBool)(pipeline->batch[0] != NULL);
  if (*more) PetscCall(pipeline->ops->progress(pipeline, result));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPipelineDestroy(TrsPipeline *pipeline)
{
  PetscFunctionBegin;
  if (!*pipeline) PetscFunctionReturn(PETSC_SUCCESS);
  if ((*pipeline)->batch[0] && (*pipeline)->ops->drain) PetscCall((*pipeline)->ops->drain(*pipeline));
  for (int i = 0; i < TRS_IN_HAND; i++)
    if ((*pipeline)->batch[i]) PetscCall(TrsReaderReturn((*pipeline)->reader, &(*pipeline)->batch[i]));
  PetscCall(PetscFree(*pipeline));
  PetscFunctionReturn(PETSC_SUCCESS);
}
