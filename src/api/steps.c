/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a collection's batches. */
#include "api/impl.h"

/*
  Choose the matrix that receives a batch's embeddings: the caller's matrix, or our own if each id
  has a row.
*/
/* NOLINTNEXTLINE(readability-non-const-parameter): the matrix is written */
static PetscErrorCode matrix_of(TrshardCollection c, int slot, float *data, int64_t stride,
                                TrsPooledMatrix *matrix)
{
  PetscFunctionBegin;
  *matrix = (TrsPooledMatrix){.rows = TrsFloats(data, stride), .columns = c->columns};
  if (c->by_id) PetscCall(TrsApiPlaces(c, slot, matrix));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode wait_for(TrshardCollection c, TrsStream before, TrsStream after)
{
  PetscFunctionBegin;
  PetscCall(c->machine.device->event_record(c->reached, before));
  PetscCall(c->machine.device->stream_wait(after, c->reached));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Begin to use the caller's matrix, after all work that is now on the caller's stream. */
static PetscErrorCode take_matrix(TrshardCollection c)
{
  PetscFunctionBegin;
  if (c->has_caller) PetscCall(wait_for(c, c->caller, c->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Finish to use the caller's matrix. The caller's stream waits for our work; if the caller set no
  stream, the host waits.
*/
static PetscErrorCode return_matrix(TrshardCollection c)
{
  PetscFunctionBegin;
  if (c->has_caller)
    PetscCall(wait_for(c, c->stream, c->caller));
  else
    PetscCall(c->machine.device->stream_synchronize(c->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return the slot of the i-th batch under way, counted from the oldest. */
static int slot_of(TrshardCollection c, int i)
{
  return (c->oldest + i) % TRS_TRAINING_SLOTS;
}

/* Return the number of rows in the caller's matrix for the batch in a slot. */
static int64_t rows_of(TrshardCollection c, int slot)
{
  const TrsKjt *kjt = &c->slot[slot].batch.kjt;

  if (c->n_started == 0) return 0;
  return c->by_id ? kjt->jagged.n_values : kjt->batch;
}

/* Send the ids of a batch if so far only their counts have been sent. */
static PetscErrorCode send_ids(TrshardCollection c, int slot)
{
  PetscFunctionBegin;
  if (c->slot[slot].ids == TRS_IDS_COUNTED) {
    PetscCall(TrsShardedEbcInputDistTensors(c->ebc, slot, c->stream));
    c->slot[slot].ids = TRS_IDS_SENT;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Wait for the ids of a batch. */
static PetscErrorCode await_ids(TrshardCollection c, int slot)
{
  PetscFunctionBegin;
  PetscCall(send_ids(c, slot));
  if (c->slot[slot].ids == TRS_IDS_SENT) PetscCall(TrsShardedEbcInputDistWait(c->ebc, slot, c->stream));
  c->slot[slot].ids = TRS_IDS_ARRIVED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiAwaitAll(TrshardCollection c)
{
  PetscFunctionBegin;
  for (int i = 0; i < c->n_started; i++) PetscCall(await_ids(c, slot_of(c, i)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check a batch, let the ranks agree on the result, and start the batch's input dist. ierr is this
  rank's result of checking the other arguments of the call.
*/
static PetscErrorCode start(TrshardCollection c, const TrshardBatch *batch, int slot, PetscErrorCode ierr)
{
  TrsApiBatch *own = &c->slot[slot];

  PetscFunctionBegin;
  /* The device may still be copying from the memory that the next batch will overwrite. */
  PetscCall(c->machine.device->stream_synchronize(c->stream));
  if (!ierr) ierr = TrsApiTakeBatch(c, batch, &own->batch);
  PetscCall(TrsAgree(c->comm, ierr));
  PetscCall(TrsDeviceBatchCopy(c->machine.device, c->machine.compute, c->stream, c->workspace, &own->batch,
                               &own->copy));
  PetscCall(TrsShardedEbcInputDistStart(c->ebc, slot, &own->copy.batch->kjt, c->stream));
  own->ids = TRS_IDS_COUNTED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse a batch that is NULL. A batch may be NULL on one rank only, if the rank's caller has found
  a mistake in it.
*/
static PetscErrorCode check_given(TrshardCollection c, const char *function, const TrshardBatch *batch)
{
  PetscFunctionBegin;
  PetscCheck(batch, PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: batch is NULL on rank %d", function,
             c->machine.rank);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode input_dist(TrshardCollection c, const TrshardBatch *batch)
{
  PetscFunctionBegin;
  PetscCheck(c->n_started < TRSHARD_BATCHES, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "TrshardInputDist: %d batches are under way already, expected a TrshardBackward first",
             c->n_started);
  /* Only one batch's ids may be in transit at a time, because all batches share the memory for
     sending. */
  if (c->n_started > 0) PetscCall(await_ids(c, slot_of(c, c->n_started - 1)));
  PetscCall(start(c, batch, slot_of(c, c->n_started), check_given(c, "TrshardInputDist", batch)));
  c->n_started++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode look_up(TrshardCollection c, int slot, const TrsPooledMatrix *matrix)
{
  PetscFunctionBegin;
  PetscCall(TrsShardedEbcForwardStart(c->ebc, slot, c->stream, matrix));
  PetscCall(TrsShardedEbcForwardWait(c->ebc, slot, c->stream, matrix));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward(TrshardCollection c, int slot, float *embeddings, int64_t stride)
{
  TrsPooledMatrix matrix;

  PetscFunctionBegin;
  PetscCall(matrix_of(c, slot, embeddings, stride, &matrix));
  PetscCall(await_ids(c, slot));
  PetscCall(take_matrix(c));
  PetscCall(look_up(c, slot, &matrix));
  if (c->by_id) PetscCall(TrsApiRowsCopy(c, slot, embeddings, stride, PETSC_TRUE));
  PetscCall(return_matrix(c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check the caller's matrix. It may be NULL only if it has no rows. */
static PetscErrorCode check_matrix(TrshardCollection c, const char *function, int64_t n_rows,
                                   const float *matrix, int64_t stride)
{
  PetscFunctionBegin;
  if (n_rows) PetscCall(TrsApiGiven(matrix, function, "the matrix"));
  PetscCheck(stride >= c->width, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s: stride is %lld floats, expected at least %lld, the width of a row", function,
             (long long)stride, (long long)c->width);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode forward_oldest(TrshardCollection c, float *pooled, int64_t stride)
{
  PetscFunctionBegin;
  PetscCall(check_matrix(c, "TrshardForward", rows_of(c, slot_of(c, 0)), pooled, stride));
  PetscCheck(c->n_started > 0 && !c->forwarded, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "TrshardForward: %s",
             c->forwarded ? "the last forward's batch waits for TrshardBackward"
                          : "no batch is under way, expected a TrshardInputDist first");
  PetscCall(forward(c, slot_of(c, 0), pooled, stride));
  if (c->n_started > 1) PetscCall(send_ids(c, slot_of(c, 1)));
  /* A GPU sorts the ids while the caller computes until the backward. */
  PetscCall(TrsShardedEbcSort(c->ebc, slot_of(c, 0), c->stream));
  c->forwarded = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode backward(TrshardCollection c, const float *gradient, int64_t stride)
{
  const double factor = c->factor * TrsScheduleFactor(&c->schedule, c->step + 1);
  const int slot = slot_of(c, 0);
  TrsPooledMatrix matrix;

  PetscFunctionBegin;
  PetscCall(check_matrix(c, "TrshardBackward", rows_of(c, slot), gradient, stride));
  PetscCheck(c->forwarded, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "TrshardBackward: no batch has had its forward, expected a TrshardForward first");
  for (int i = 0; i < c->optimizers.n; i++) {
    c->step_args[i] = c->optimizers.args[i];
    c->step_args[i].step = c->step + 1;
    c->step_args[i].learning_rate = (float)((double)c->optimizers.args[i].learning_rate * factor);
  }
  PetscCall(take_matrix(c));
  PetscCall(TrsApiGradient(c, slot, gradient, stride, &matrix));
  PetscCall(TrsShardedEbcBackwardStart(c->ebc, slot, c->stream, &matrix));
  PetscCall(TrsShardedEbcBackwardUpdate(c->ebc, slot, c->stream, &matrix, c->step_args));
  PetscCall(c->machine.device->event_record(c->slot[slot].copy.used, c->stream));
  PetscCall(return_matrix(c));
  c->slot[slot].copy.host = NULL;
  c->forwarded = PETSC_FALSE;
  c->oldest = slot_of(c, 1);
  c->n_started--;
  c->step++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Repeat the forward of a batch after an evaluation. The exchanges keep the data of the last
  forward, and a backward needs the data of its own batch's forward.
*/
static PetscErrorCode repeat_forward(TrshardCollection c, int slot)
{
  TrsPooledMatrix matrix;

  PetscFunctionBegin;
  PetscCall(TrsApiPlaces(c, slot, &matrix));
  PetscCall(look_up(c, slot, &matrix));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode evaluate(TrshardCollection c, const TrshardBatch *batch, float *pooled, int64_t stride)
{
  const int slot = TRS_TRAINING_SLOTS;
  PetscErrorCode ierr = check_given(c, "TrshardEvaluate", batch);

  PetscFunctionBegin;
  if (!ierr)
    ierr = check_matrix(c, "TrshardEvaluate", c->by_id ? batch->n_values : batch->batch, pooled, stride);
  /* The counts of two batches must not be in transit at the same time (comm/shared_lanes.h). */
  if (c->n_started > 0) PetscCall(send_ids(c, slot_of(c, c->n_started - 1)));
  PetscCall(start(c, batch, slot, ierr));
  PetscCall(forward(c, slot, pooled, stride));
  PetscCall(TrsShardedEbcEvaluated(c->ebc, slot, c->stream));
  if (c->forwarded) PetscCall(repeat_forward(c, slot_of(c, 0)));
  PetscCall(c->machine.device->event_record(c->slot[slot].copy.used, c->stream));
  c->slot[slot].copy.host = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_stream(TrshardCollection c, void *cuda_stream)
{
  PetscFunctionBegin;
  PetscCheck(!c->machine.device->host_memory, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "TrshardSetStream: the collection's device is %s, expected -device cuda",
             c->machine.device->name);
  c->caller = (TrsStream)cuda_stream;
  c->has_caller = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrshardSetStream(TrshardCollection c, void *cuda_stream)
{
  return TRS_API_CALL_OF(c, set_stream(c, cuda_stream));
}

int TrshardInputDist(TrshardCollection c, const TrshardBatch *batch)
{
  return TRS_API_CALL_OF(c, input_dist(c, batch));
}

int TrshardForward(TrshardCollection c, float *pooled, int64_t stride)
{
  return TRS_API_CALL_OF(c, forward_oldest(c, pooled, stride));
}

int TrshardBackward(TrshardCollection c, const float *gradient, int64_t stride)
{
  return TRS_API_CALL_OF(c, backward(c, gradient, stride));
}

int TrshardEvaluate(TrshardCollection c, const TrshardBatch *batch, float *pooled, int64_t stride)
{
  return TRS_API_CALL_OF(c, evaluate(c, batch, pooled, stride));
}
