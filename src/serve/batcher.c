/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve/batcher.h"

#include "core/clock.h"

#include <math.h>
#include <string.h>

/* The memory of one thread. */
typedef struct {
  TrsServeRequest joined;  /* samples of several requests; only n, n_values and buffers are used */
  TrshardEncoded *encoded; /* of a request with raw columns */
} TrsServeMemory;

struct TrsServeBatcherImpl {
  TrsServeBatching how;
  TrsServeSlot slot;
  TrsServeMetrics *metrics;
  pthread_mutex_t lock; /* guards the queue and `ends` */
  pthread_cond_t comes;
  TrsServeRequest *first, **end; /* the queue; *end is NULL */
  PetscBool ends;
  int64_t n_started;
  pthread_t *thread; /* [n_started] */
};

/* --- predictions --- */

/*
  Predict the samples of a request, and set its step to that of the weights. Returns a status of the
  library.
*/
static int predict(const TrsServeModel *model, TrsServeRequest *r)
{
  const TrshardBatch ids = {.batch = r->n,
                            .lengths = r->lengths.data,
                            .n_values = r->n_values,
                            .values = r->values.data,
                            .weights = r->weights.data};

  return TrshardPredictStep(model->predictor, &ids, r->dense.data, r->predictions.data, &r->step);
}

/* Set a request's outcome from a status of the library. */
static void conclude(TrsServeRequest *r, int status)
{
  if (status == TRSHARD_SUCCESS)
    r->outcome.status = 200;
  else
    (void)TrsServeRefuse(&r->outcome, status == TRSHARD_ERROR_DATA ? 400 : 500, "%s", TrshardErrorMessage());
}

static void copy(TrsBuffer *to, const void *from, int64_t n, size_t size)
{
  if (n > 0) memcpy(to->data, from, (size_t)n * size);
}

/* Make a request's inputs from its raw columns, by the model's mapping. */
static void encode(TrsServeBatcher b, const TrsServeModel *model, TrsServeRequest *r, TrsServeMemory *memory)
{
  const TrsServeShape *shape = TrsServeSlotShape(b->slot);
  const int status = TrshardEncode(model->encoder, r->n, r->columns.data, &memory->encoded);
  const TrshardBatch *ids = status ? NULL : &memory->encoded->ids;

  conclude(r, status);
  if (status) return;
  r->n_values = ids->n_values;
  if (!TrsServeReserveSamples(shape, r->n_values, r)) {
    (void)TrsServeRefuseMemory(&r->outcome);
    return;
  }
  copy(&r->lengths, ids->lengths, r->n * shape->n_features, sizeof(int32_t));
  copy(&r->values, ids->values, r->n_values, sizeof(int64_t));
  copy(&r->dense, memory->encoded->dense, r->n * shape->num_dense, sizeof(float));
  for (int64_t i = 0; i < r->n_values; i++)
    ((float *)r->weights.data)[i] = ids->weights ? ids->weights[i] : 1.0F;
}

/* Copy the ids of feature f of request r behind the first *at ids of the batch. */
static void join_ids(const TrsServeRequest *r, const int32_t *lengths, int64_t *from, int64_t *at,
                     TrsServeRequest *to)
{
  int64_t count = 0;

  for (int64_t i = 0; i < r->n; i++) count += lengths[i];
  memcpy((int64_t *)to->values.data + *at, (const int64_t *)r->values.data + *from,
         (size_t)count * sizeof(int64_t));
  memcpy((float *)to->weights.data + *at, (const float *)r->weights.data + *from,
         (size_t)count * sizeof(float));
  *from += count;
  *at += count;
}

/*
  Copy the requests of the list `first` into `to`, which has the sum of their n and n_values. Their
  steps count the ids that were copied. Returns false if memory ran out.
*/
static int join(const TrsServeShape *shape, TrsServeRequest *first, TrsServeRequest *to)
{
  int64_t at = 0, sample = 0;

  if (!TrsServeReserveSamples(shape, to->n_values, to)) {
    TrsErrorClear();
    return 0;
  }
  for (TrsServeRequest *r = first; r; sample += r->n, r = r->next) {
    r->step = 0;
    memcpy((float *)to->dense.data + sample * shape->num_dense, r->dense.data,
           (size_t)(r->n * shape->num_dense) * sizeof(float));
  }
  for (int32_t f = 0; f < shape->n_features; f++) {
    int32_t *lengths = (int32_t *)to->lengths.data + f * to->n;

    for (TrsServeRequest *r = first; r; lengths += r->n, r = r->next) {
      const int32_t *of_request = (const int32_t *)r->lengths.data + f * r->n;

      memcpy(lengths, of_request, (size_t)r->n * sizeof(int32_t));
      join_ids(r, of_request, &r->step, &at, to);
    }
  }
  return 1;
}

/* Copy the predictions of a batch and their step to its requests. */
static void divide(const TrsServeShape *shape, TrsServeRequest *first, const TrsServeRequest *joined)
{
  const float *predictions = joined->predictions.data;

  for (TrsServeRequest *r = first; r; r = r->next) {
    const int64_t n = r->n * shape->n_outputs;

    copy(&r->predictions, predictions, n, sizeof(float));
    predictions += n;
    r->step = joined->step;
    conclude(r, TRSHARD_SUCCESS);
  }
}

/*
  Predict the requests of the list `first`: together, or one after the other if an id of one of them
  is wrong, so that only this one fails.
*/
static void predict_list(TrsServeBatcher b, TrsServeRequest *first, TrsServeMemory *memory)
{
  const TrsServeShape *shape = TrsServeSlotShape(b->slot);
  TrsServeModel *model = TrsServeSlotTake(b->slot);
  TrsServeRequest *joined = &memory->joined;
  int together = first->next != NULL;

  joined->n = joined->n_values = 0;
  for (TrsServeRequest *r = first; r; r = r->next) {
    if (r->is_raw) encode(b, model, r, memory);
    together = together && r->outcome.status == 200;
    joined->n += r->n;
    joined->n_values += r->n_values;
  }
  together = together && join(shape, first, joined) && predict(model, joined) == TRSHARD_SUCCESS;
  if (together) divide(shape, first, joined);
  for (TrsServeRequest *r = together ? NULL : first; r; r = r->next)
    if (r->outcome.status == 200) conclude(r, predict(model, r));
  TrsServeSlotGiveBack(b->slot, model);
  atomic_fetch_add(&b->metrics->batches, 1);
  for (TrsServeRequest *r = first, *next; r; r = next) {
    next = r->next;
    if (r->outcome.status == 200) {
      atomic_fetch_add(&b->metrics->samples, r->n);
      atomic_fetch_add(&b->metrics->ids, r->n_values);
    }
    r->done(r->context); /* the request may be gone from here on */
  }
}

/* --- the queue --- */

/* Wait until a request comes, or until `deadline` if it is not negative. */
static void wait_for_request(TrsServeBatcher b, double deadline)
{
  struct timespec until;

  if (deadline < 0.0) {
    (void)pthread_cond_wait(&b->comes, &b->lock);
    return;
  }
  until.tv_sec = (time_t)deadline;
  until.tv_nsec = (long)(1e9 * (deadline - floor(deadline)));
  (void)pthread_cond_timedwait(&b->comes, &b->lock, &until);
}

/*
  Take the requests of a batch out of the queue. Returns NULL if the batcher ends and the queue is
  empty. The lock is held.
*/
static TrsServeRequest *take_list(TrsServeBatcher b)
{
  TrsServeRequest *first = NULL, **end = &first;
  int64_t n = 0;
  double deadline = 0.0;

  while (!b->first && !b->ends) wait_for_request(b, -1.0);
  while (b->first || first) {
    while (b->first && (!first || n + b->first->n <= b->how.batch)) {
      TrsServeRequest *r = b->first;

      b->first = r->next;
      if (!b->first) b->end = &b->first;
      if (!first) deadline = r->begin_s + b->how.wait_s;
      r->next = NULL;
      *end = r;
      end = &r->next;
      n += r->n;
    }
    if (b->first || n >= b->how.batch || b->ends || TrsClock() >= deadline) break;
    wait_for_request(b, deadline);
  }
  return first;
}

static void *work(void *context)
{
  TrsServeBatcher b = context;
  TrsServeMemory memory = {.encoded = NULL};

  for (;;) {
    TrsServeRequest *first;

    (void)pthread_mutex_lock(&b->lock);
    first = take_list(b);
    if (b->first) (void)pthread_cond_signal(&b->comes); /* another thread takes the rest */
    (void)pthread_mutex_unlock(&b->lock);
    if (!first) break;
    predict_list(b, first, &memory);
  }
  TrsServeFreeBuffers(&memory.joined, -1);
  TrshardEncodedFree(&memory.encoded);
  return NULL;
}

static int init_lock(TrsServeBatcher b)
{
  pthread_condattr_t attributes;

  return pthread_mutex_init(&b->lock, NULL) || pthread_condattr_init(&attributes) ||
         pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) ||
         pthread_cond_init(&b->comes, &attributes) || pthread_condattr_destroy(&attributes);
}

PetscErrorCode TrsServeBatcherCreate(const TrsServeBatching *how, TrsServeSlot slot, TrsServeMetrics *metrics,
                                     TrsServeBatcher *batcher)
{
  TrsServeBatcher b;

  PetscFunctionBegin;
  PetscCall(PetscNew(&b));
  *batcher = b;
  b->how = *how;
  b->slot = slot;
  b->metrics = metrics;
  b->end = &b->first;
  PetscCheck(init_lock(b) == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "no lock can be made");
  PetscCall(PetscCalloc1((size_t)how->threads, &b->thread));
  for (; b->n_started < how->threads; b->n_started++)
    PetscCheck(pthread_create(&b->thread[b->n_started], NULL, work, b) == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY,
               "-serve_threads %lld: the system gives no more threads", (long long)how->threads);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void refuse_at_end(TrsServeRequest *request)
{
  (void)TrsServeRefuse(&request->outcome, 503, "the server is stopping");
  request->done(request->context);
}

void TrsServeBatcherEnd(TrsServeBatcher b)
{
  TrsServeRequest *waits;

  if (!b) return;
  (void)pthread_mutex_lock(&b->lock);
  b->ends = PETSC_TRUE;
  waits = b->first;
  b->first = NULL;
  b->end = &b->first;
  (void)pthread_cond_broadcast(&b->comes);
  (void)pthread_mutex_unlock(&b->lock);
  for (TrsServeRequest *next; waits; waits = next) {
    next = waits->next;
    refuse_at_end(waits); /* the request may be gone from here on */
  }
  for (int64_t t = 0; t < b->n_started; t++) (void)pthread_join(b->thread[t], NULL);
  b->n_started = 0;
}

PetscErrorCode TrsServeBatcherDestroy(TrsServeBatcher *batcher)
{
  TrsServeBatcher b = *batcher;

  PetscFunctionBegin;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  TrsServeBatcherEnd(b);
  (void)pthread_cond_destroy(&b->comes);
  (void)pthread_mutex_destroy(&b->lock);
  PetscCall(PetscFree(b->thread));
  PetscCall(PetscFree(*batcher));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsServeSubmit(TrsServeBatcher b, TrsServeRequest *request)
{
  PetscBool ends;

  request->next = NULL;
  (void)pthread_mutex_lock(&b->lock);
  ends = b->ends;
  if (!ends) {
    *b->end = request;
    b->end = &request->next;
  }
  (void)pthread_mutex_unlock(&b->lock);
  if (ends)
    refuse_at_end(request);
  else
    (void)pthread_cond_signal(&b->comes); /* without the lock, which the thread needs first */
}
