/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/pipeline.h"

#include "core/events.h"

#include <math.h>

/* The numbers that the ranks exchange in each step. They are summed over ranks. */
typedef enum {
  TRS_AGREE_LOSS,
  TRS_AGREE_STOP, /* ranks that were asked to stop, and TRS_MANY_RANKS for each busy rank */
  TRS_AGREE_ERROR,
  TRS_AGREE_BAD_IDS,
  TRS_AGREE_BAD_NUMBERS,
  TRS_AGREE_WEIGHTS, /* with weighted samples: the digits of the sum of the next batch's weights */
  TRS_N_AGREE = TRS_AGREE_WEIGHTS + TRS_WEIGHT_DIGITS
} TrsAgreement;
enum { TRS_MANY_RANKS = 1 << 24 }; /* more than a job has */
_Static_assert((int)TRS_N_AGREE <= (int)TRS_LANE_COUNTS, "weighted steps would agree by MPI, which is slow");

/*
  Number of batches that a pipeline holds: the batch that ends next, the batches whose forward or
  input dist is running, and the batch after these.
*/
enum { TRS_IN_HAND = 4 };
_Static_assert((int)TRS_IN_HAND == (int)TRS_READER_OUT + 1, "the reader lends as many, one more to a device");

typedef struct {
  TrsBatch *batch;
  const float *predictions; /* valid as soon as the batch's loss is available */
  double start_s;           /* time at which its input dist started */
} TrsInHand;

typedef struct {
  const char *name;
  /*
    Start the work that the first forward needs, for the first two batches. NULL: no work runs
    ahead.
  */
  PetscErrorCode (*fill)(TrsPipeline pipeline);
  /* Run the forward of hand[i], and start the work on later batches that overlaps with it. */
  PetscErrorCode (*forward)(TrsPipeline pipeline, int i);
  /*
    Called after a batch has ended and hand[] has moved up. Starts work on the batches after the
    forwards. NULL: there is no such work.
  */
  PetscErrorCode (*next)(TrsPipeline pipeline);
} TrsPipelineOps;

struct TrsPipelineImpl {
  const TrsPipelineOps *ops;
  TrsComm control;
  TrsModelParallel model;
  TrsReader reader;
  TrsBatchObserver observer; /* its function `batch` is NULL if there is no observer */
  PetscBool evaluation;
  int64_t first_update;
  const volatile int *stop;
  const int *busy;      /* NULL: never */
  PetscBool prefetches; /* -pipeline prefetch_sparse_dist */
  PetscBool filled;
  PetscErrorCode error; /* error of this rank's reader or observer, until the ranks agree on it */
  TrsInHand hand[TRS_IN_HAND];
  /* Number of forwards that have been started. It includes hand[0] if the forwards of an
     evaluation run ahead. */
  int ahead;
  int first_slot, n_slots, turn; /* slots are used in turn; `turn` is the slot of hand[0] */
  double mine[TRS_N_AGREE], sum[TRS_N_AGREE];
  const TrsTaskConfigs *tasks;
  double losses[TRS_MOST_TASKS]; /* [tasks] losses of the forward of hand[0] */
  TrsSum agreement;
};

static const TrsOptionSpec pipeline_specs[] = {
    {"-pipeline", TRS_OPTION_ENUM, "sparse_dist", NULL, "base,sparse_dist,prefetch_sparse_dist", NULL,
     "work that overlaps in trainings and evaluations. base: nothing. sparse_dist: the next batch's "
     "input dist. prefetch_sparse_dist: also the fill of caches (fused_uvm_caching, lru) with the next "
     "batch's rows"},
};
const TrsOptionGroup trs_pipeline_options = TRS_OPTION_GROUP("Pipeline", pipeline_specs);

static int slot_of(TrsPipeline p, int i)
{
  return p->first_slot + (p->turn + i) % p->n_slots;
}

/* Get the reader's next batch for hand[i]. An error is stored until the ranks agree on it. */
static PetscErrorCode fetch(TrsPipeline p, int i)
{
  TrsInHand *hand = &p->hand[i];
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_IO, &before));
  *hand = (TrsInHand){.batch = NULL};
  if (!p->error) p->error = TrsReaderNext(p->reader, &hand->batch);
  PetscCall(TrsStageSwitch(before, NULL));
  if (hand->batch) PetscCall(TrsModelParallelCopyStart(p->model, slot_of(p, i), hand->batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- parts of a step --- */

static PetscErrorCode start_counts(TrsPipeline p, int i)
{
  PetscFunctionBegin;
  p->hand[i].start_s = MPI_Wtime();
  PetscCall(TrsModelParallelInputDistStart(p->model, slot_of(p, i), p->hand[i].batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Start to send the ids of a batch. */
static PetscErrorCode start_ids(TrsPipeline p, int i)
{
  PetscFunctionBegin;
  PetscCall(start_counts(p, i));
  PetscCall(TrsModelParallelInputDistTensors(p->model, slot_of(p, i)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode wait_for_ids(TrsPipeline p, int i)
{
  PetscFunctionBegin;
  PetscCall(TrsModelParallelInputDistWait(p->model, slot_of(p, i)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Run the forward of a batch after its input dist is done. */
static PetscErrorCode forward(TrsPipeline p, int i)
{
  TrsInHand *hand = &p->hand[i];

  PetscFunctionBegin;
  PetscCall(TrsModelParallelForward(p->model, slot_of(p, i), hand->batch,
                                    p->observer.batch ? &hand->predictions : NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if the loss of the step is an average with the samples' weights. Not used in an evaluation,
  whose forwards run before the ranks have summed the weights.
*/
static PetscBool is_weighted(TrsPipeline p, const TrsBatch *batch)
{
  return (PetscBool)(batch->weights && !p->evaluation);
}

/* Add this rank's sum of a batch's weights to the numbers of the step. `batch` may be NULL. */
static void put_weights(TrsPipeline p, const TrsBatch *batch)
{
  for (int k = 0; k < TRS_WEIGHT_DIGITS; k++)
    p->mine[TRS_AGREE_WEIGHTS + k] = batch ? batch->weight_digits[k] : 0.0;
}

/* Sum the weights of the first batch over ranks, because no earlier step has done this. */
static PetscErrorCode add_first_weights(TrsPipeline p)
{
  TrsBatch *batch = p->hand[0].batch;

  PetscFunctionBegin;
  if (!batch || !is_weighted(p, batch)) PetscFunctionReturn(PETSC_SUCCESS);
  put_weights(p, batch);
  PetscCall(TrsCommSumStart(p->control, TRS_WEIGHT_DIGITS, p->mine + TRS_AGREE_WEIGHTS,
                            p->sum + TRS_AGREE_WEIGHTS, &p->agreement));
  PetscCall(TrsCommSumWait(&p->agreement));
  batch->weight_sum = TrsWeightSumTotal(p->sum + TRS_AGREE_WEIGHTS);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Get the results of the forward of hand[0]. Then start the exchange by which the ranks agree on
  these results and on the state of the reader.
*/
static PetscErrorCode agreement_start(TrsPipeline p)
{
  const TrsInHand *hand = &p->hand[0];
  const PetscBool weighted = is_weighted(p, hand->batch);
  double loss = 0.0;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsModelParallelLosses(p->model, slot_of(p, 0), p->losses));
  /* By now the device has assembled the batch. */
  if (!p->error) p->error = TrsReaderCheck(p->reader, hand->batch);
  for (int t = 0; t < p->tasks->n; t++) loss += p->tasks->task[t].weight * p->losses[t];
  p->mine[TRS_AGREE_LOSS] = loss;
  if (p->observer.batch) {
    /*
      The observer may be collective, so it is called even after an error that only this rank has
      seen.
    */
    ierr = p->observer.batch(p->observer.context, hand->batch, hand->predictions, p->losses,
                             MPI_Wtime() - hand->start_s);
    if (!p->error) p->error = ierr;
  }
  if (!p->ops->fill) PetscCall(fetch(p, 1));
  p->mine[TRS_AGREE_STOP] = p->stop && *p->stop != 0;
  p->mine[TRS_AGREE_ERROR] = p->error != 0;
  if (p->busy && __atomic_load_n(p->busy, __ATOMIC_ACQUIRE)) p->mine[TRS_AGREE_STOP] += TRS_MANY_RANKS;
  p->mine[TRS_AGREE_BAD_IDS] = (double)hand->batch->bad_ids;
  p->mine[TRS_AGREE_BAD_NUMBERS] = (double)hand->batch->bad_numbers;
  if (weighted) put_weights(p, p->hand[1].batch);
  PetscCall(TrsCommSumStart(p->control, weighted ? TRS_N_AGREE : TRS_AGREE_WEIGHTS, p->mine, p->sum,
                            &p->agreement));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Send a bad id to all ranks: the bad id of the lowest rank that has one. */
static PetscErrorCode share_bad_id(TrsPipeline p, TrsBadId *bad)
{
  const TrsBatch *batch = p->hand[0].batch;
  int first = batch->bad_ids ? p->control->rank : p->control->size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, p->control->mpi));
  *bad = batch->first_bad;
  PetscCallMPI(MPI_Bcast(bad, (int)sizeof(*bad), MPI_BYTE, first, p->control->mpi));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode agreement_wait(TrsPipeline p, TrsStepResult *result)
{
  const TrsBatch *batch = p->hand[0].batch;
  const PetscBool weighted = is_weighted(p, batch);
  const double weight = weighted ? batch->weight_sum : (double)batch->global_batch;

  PetscFunctionBegin;
  PetscCall(TrsCommSumWait(&p->agreement));
  if (p->sum[TRS_AGREE_ERROR] > 0) PetscCall(TrsAgree(p->control->mpi, p->error));
  *result = (TrsStepResult){.step = batch->step,
                            .epoch = batch->epoch,
                            .global_batch = batch->global_batch,
                            .position = batch->position,
                            .loss = weight == 0.0 ? 0.0 : p->sum[TRS_AGREE_LOSS] / weight,
                            .stop = (PetscBool)(fmod(p->sum[TRS_AGREE_STOP], TRS_MANY_RANKS) > 0),
                            .busy = (PetscBool)(p->sum[TRS_AGREE_STOP] >= TRS_MANY_RANKS),
                            .ids = (double)batch->kjt.jagged.n_values / (double)PetscMax(batch->batch, 1) *
                                   (double)batch->global_batch,
                            .bad_ids = (int64_t)p->sum[TRS_AGREE_BAD_IDS],
                            .bad_numbers = (int64_t)p->sum[TRS_AGREE_BAD_NUMBERS]};
  if (weighted && p->hand[1].batch)
    p->hand[1].batch->weight_sum = TrsWeightSumTotal(p->sum + TRS_AGREE_WEIGHTS);
  if (result->bad_ids && !p->evaluation) PetscCall(share_bad_id(p, &result->first_bad));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return hand[0], which is done, to the reader, and move the next batches up. */
static PetscErrorCode advance(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(TrsReaderReturn(p->reader, &p->hand[0].batch));
  for (int i = 1; i < TRS_IN_HAND; i++) p->hand[i - 1] = p->hand[i];
  p->hand[TRS_IN_HAND - 1].batch = NULL;
  p->turn = (p->turn + 1) % p->n_slots;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Finish a training step after the forward: run the backward, and meanwhile the ranks agree. */
static PetscErrorCode finish_training(TrsPipeline p, TrsStepResult *result)
{
  const TrsBatch *batch = p->hand[0].batch;
  const PetscBool loss_is_late = TrsModelParallelIsAsynchronous(p->model);

  PetscFunctionBegin;
  if (!loss_is_late) PetscCall(agreement_start(p));
  PetscCall(TrsModelParallelBackward(p->model, slot_of(p, 0), batch, p->first_update + batch->step));
  if (loss_is_late) PetscCall(agreement_start(p));
  PetscCall(agreement_wait(p, result));
  PetscCall(advance(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode finish_evaluation(TrsPipeline p, TrsStepResult *result)
{
  PetscFunctionBegin;
  PetscCall(agreement_start(p));
  PetscCall(agreement_wait(p, result));
  PetscCall(advance(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the pipelines --- */

static PetscErrorCode forward_base(TrsPipeline p, int i)
{
  PetscFunctionBegin;
  PetscCall(start_ids(p, i));
  PetscCall(wait_for_ids(p, i));
  PetscCall(forward(p, i));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fill_sparse_dist(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(start_ids(p, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The batch's input dist has been started before. */
static PetscErrorCode forward_sparse_dist(TrsPipeline p, int i)
{
  const PetscBool more = (PetscBool)(p->hand[i + 1].batch != NULL);

  PetscFunctionBegin;
  PetscCall(wait_for_ids(p, i));
  if (more) PetscCall(start_counts(p, i + 1));
  PetscCall(forward(p, i));
  if (more) {
    PetscCall(TrsModelParallelInputDistTensors(p->model, slot_of(p, i + 1)));
    PetscCall(fetch(p, i + 2));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  At the end of a step, the ids of the batch after the next forward are being sent. Its counts are
  not, because evaluations between steps exchange their own counts (comm/shared_lanes.h).
*/
static PetscErrorCode next_prefetch(TrsPipeline p)
{
  PetscFunctionBegin;
  if (p->hand[p->ahead + 1].batch) PetscCall(start_ids(p, p->ahead + 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fill_prefetch(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(start_ids(p, 0));
  PetscCall(wait_for_ids(p, 0));
  PetscCall(TrsModelParallelPrefetch(p->model, slot_of(p, 0)));
  PetscCall(next_prefetch(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Before this function is called, the input dist and the cache fill of the batch have been started,
  and the ids of the next batch as well. The rows of the next batch are copied to the caches between
  this batch's forward and its update. This does not change the cache lines that the forward uses.
  The update finds rows that have moved.
*/
static PetscErrorCode forward_prefetch(TrsPipeline p, int i)
{
  PetscFunctionBegin;
  PetscCall(forward(p, i));
  if (p->hand[i + 1].batch) {
    PetscCall(wait_for_ids(p, i + 1));
    PetscCall(TrsModelParallelPrefetch(p->model, slot_of(p, i + 1)));
    PetscCall(fetch(p, i + 2));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  With -ebc_look_ahead the ids of the next batch arrive during the forward, which then sends rows of
  the next batch. So the counts of the batch after it are sent during the backward, and its ids from
  the end of the step on.
*/
static PetscErrorCode fill_look_ahead(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(start_ids(p, 0));
  PetscCall(wait_for_ids(p, 0));
  if (p->prefetches) PetscCall(TrsModelParallelPrefetch(p->model, slot_of(p, 0)));
  if (p->hand[1].batch) PetscCall(start_ids(p, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode next_look_ahead(TrsPipeline p)
{
  PetscFunctionBegin;
  if (p->hand[1].batch) PetscCall(TrsModelParallelInputDistTensors(p->model, slot_of(p, 1)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_look_ahead(TrsPipeline p, int i)
{
  const PetscBool more = (PetscBool)(p->hand[i + 1].batch != NULL);

  PetscFunctionBegin;
  if (more) TrsModelParallelLookAhead(p->model, slot_of(p, i + 1));
  PetscCall(forward(p, i));
  if (!more) PetscFunctionReturn(PETSC_SUCCESS);
  if (p->prefetches) PetscCall(TrsModelParallelPrefetch(p->model, slot_of(p, i + 1)));
  PetscCall(fetch(p, i + 2));
  if (p->hand[i + 2].batch) PetscCall(start_counts(p, i + 2));
  PetscFunctionReturn(PETSC_SUCCESS);
}

enum { TRS_BASE, TRS_SPARSE_DIST, TRS_PREFETCH_SPARSE_DIST, TRS_LOOK_AHEAD };
static const TrsPipelineOps pipelines[] = {
    [TRS_BASE] = {.name = "base", .forward = forward_base},
    [TRS_SPARSE_DIST] = {.name = "sparse_dist", .fill = fill_sparse_dist, .forward = forward_sparse_dist},
    [TRS_PREFETCH_SPARSE_DIST] = {.name = "prefetch_sparse_dist",
                                  .fill = fill_prefetch,
                                  .forward = forward_prefetch,
                                  .next = next_prefetch},
    [TRS_LOOK_AHEAD] = {.name = "look ahead",
                        .fill = fill_look_ahead,
                        .forward = forward_look_ahead,
                        .next = next_look_ahead},
};

/*
  Choose the pipeline. If tables give rows to ids, the ids of a batch must not arrive before the
  update of the previous batch. Only trainings look ahead.
*/
static PetscErrorCode choose(TrsPipeline p, TrsOptions options)
{
  PetscBool look_ahead = PETSC_FALSE;
  int kind = TRS_BASE;

  PetscFunctionBegin;
  if (options) PetscCall(TrsOptionsGetEnum(options, "-pipeline", &kind, NULL));
  if (kind == TRS_PREFETCH_SPARSE_DIST && TrsModelParallelGivesRows(p->model)) kind = TRS_SPARSE_DIST;
  p->prefetches = (PetscBool)(kind == TRS_PREFETCH_SPARSE_DIST);
  if (options && !p->evaluation) PetscCall(TrsOptionsGetBool(options, "-ebc_look_ahead", &look_ahead, NULL));
  if (look_ahead && kind == TRS_BASE)
    PetscCall(TrsOptionError(options, "-ebc_look_ahead",
                             "does not go with -pipeline base, which overlaps nothing: leave one out"));
  if (look_ahead && TrsModelParallelLooksAhead(p->model)) {
    kind = TRS_LOOK_AHEAD;
    /* the input dist of batch i + 2 starts before the end of batch i */
    p->n_slots = TRS_TRAINING_SLOTS;
  }
  p->ops = &pipelines[kind];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create(TrsComm control, TrsModelParallel model, TrsReader reader, int64_t first_update,
                             const volatile int *stop, TrsPipeline *pipeline)
{
  TrsPipeline p;

  PetscFunctionBegin;
  PetscCall(PetscNew(&p));
  p->control = control;
  p->model = model;
  p->tasks = TrsModelParallelTasks(model);
  p->reader = reader;
  p->first_update = first_update;
  p->stop = stop;
  /*
    If a batch ends together with its step, two slots are enough. If the device still works on it, a
    third slot lets the next input dist start during this work.
  */
  p->n_slots = TrsModelParallelIsAsynchronous(model) ? TRS_TRAINING_SLOTS : 2;
  *pipeline = p;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPipelineCreate(TrsComm control, TrsOptions options, TrsModelParallel model,
                                 TrsReader reader, int64_t first_update, const volatile int *stop,
                                 TrsPipeline *pipeline)
{
  PetscFunctionBegin;
  PetscCall(create(control, model, reader, first_update, stop, pipeline));
  PetscCall(choose(*pipeline, options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPipelineCreateEvaluation(TrsComm control, TrsOptions options, TrsModelParallel model,
                                           TrsReader reader, const volatile int *stop, TrsPipeline *pipeline)
{
  PetscFunctionBegin;
  PetscCall(create(control, model, reader, 0, stop, pipeline));
  (*pipeline)->evaluation = PETSC_TRUE;
  PetscCall(choose(*pipeline, options));
  (*pipeline)->first_slot = TRS_TRAINING_SLOTS;
  PetscCall(TrsModelParallelSwapAverage(model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPipelineSetObserver(TrsPipeline pipeline, const TrsBatchObserver *observer)
{
  PetscFunctionBegin;
  pipeline->observer = *observer;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsPipelineSetBusy(TrsPipeline pipeline, const int *busy)
{
  pipeline->busy = busy;
}

/*
  Get the first batch. If input dists run ahead, also get the second batch, and start the work that
  the first forward needs. If forwards run ahead, start the first forward.
*/
static PetscErrorCode fill(TrsPipeline p)
{
  PetscFunctionBegin;
  PetscCall(fetch(p, 0));
  PetscCall(TrsAgree(p->control->mpi, p->error));
  p->filled = PETSC_TRUE;
  PetscCall(add_first_weights(p));
  if (!p->hand[0].batch || !p->ops->fill) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(fetch(p, 1));
  PetscCall(TrsAgree(p->control->mpi, p->error));
  PetscCall(p->ops->fill(p));
  if (!p->evaluation || !TrsModelParallelForwardsAhead(p->model)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(p->ops->forward(p, 0));
  PetscCall(TrsAgree(p->control->mpi, p->error));
  p->ahead = 1;
  if (p->ops->next) PetscCall(p->ops->next(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPipelineProgress(TrsPipeline p, TrsStepResult *result, PetscBool *more)
{
  PetscFunctionBegin;
  if (!p->filled) PetscCall(fill(p));
  *more = (PetscBool)(p->hand[0].batch != NULL);
  if (!*more) {
    /* the reader of a stream may have batches again at the next call */
    p->filled = PETSC_FALSE;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (p->hand[p->ahead].batch) PetscCall(p->ops->forward(p, p->ahead));
  PetscCall(p->evaluation ? finish_evaluation(p, result) : finish_training(p, result));
  if (p->ops->next) PetscCall(p->ops->next(p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Finish the work that has been started: a forward that ran ahead, rows that travel ahead, and the
  input dist of the batch after the forwards. If caches are filled or rows are sent ahead, it is the
  input dist of the batch after that batch.
*/
static PetscErrorCode drain(TrsPipeline p)
{
  const int i = p->ahead + (p->ops->next ? 1 : 0);

  PetscFunctionBegin;
  if (p->ahead && p->hand[0].batch) PetscCall(TrsModelParallelLosses(p->model, slot_of(p, 0), p->losses));
  if (p->filled && p->ops->fill && p->hand[i].batch) PetscCall(wait_for_ids(p, i));
  if (p->ops == &pipelines[TRS_LOOK_AHEAD]) PetscCall(TrsModelParallelCancelAhead(p->model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPipelineDestroy(TrsPipeline *pipeline)
{
  PetscFunctionBegin;
  if (!*pipeline) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(drain(*pipeline));
  if ((*pipeline)->evaluation) PetscCall(TrsModelParallelSwapAverage((*pipeline)->model));
  for (int i = 0; i < TRS_IN_HAND; i++)
    if ((*pipeline)->hand[i].batch)
      PetscCall(TrsReaderReturn((*pipeline)->reader, &(*pipeline)->hand[i].batch));
  PetscCall(PetscFree(*pipeline));
  PetscFunctionReturn(PETSC_SUCCESS);
}
