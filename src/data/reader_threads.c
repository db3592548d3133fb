/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads of a reader, and the changes of a stream's dataset, for which they pause. */
#include "core/c_locale.h"
#include "core/clock.h"
#include "core/trace.h"
#include "data/reader_impl.h"
#include "device/cpu_bind.h"

#include <signal.h>
#include <string.h>

/*
  Wait until the main thread has enlarged the memory for the batch's ids, both in the slot and in
  this thread. The slot alone may already be large enough, because another thread's batch was large.
  Returns false if this thread must stop.
*/
static PetscBool wait_for_room(TrsReaderThread *t, TrsSlot *s)
{
  TrsReader reader = t->reader;
  PetscBool go_on;

  if (t->scratch.n_values <= PetscMin(s->room.n_values, t->scratch.most_values)) return PETSC_TRUE;
  pthread_mutex_lock(&reader->lock);
  s->state = TRS_SLOT_NEEDS_ROOM;
  reader->n_reading--;
  pthread_cond_broadcast(&reader->changed);
  while ((s->state == TRS_SLOT_NEEDS_ROOM || reader->pause) && !reader->stop)
    pthread_cond_wait(&reader->changed, &reader->lock);
  reader->n_reading++;
  go_on = reader->stop ? PETSC_FALSE : PETSC_TRUE;
  pthread_mutex_unlock(&reader->lock);
  return go_on;
}

/*
  True if a thread must wait before it reads this step: the slot is not free for it, or the stream
  does not have its samples yet. Several steps may wait for the same slot, which then takes them in
  order. The caller must hold the lock.
*/
static PetscBool must_wait(TrsReader reader, const TrsSlot *s, int64_t step)
{
  if (step >= reader->total) return (PetscBool)(reader->schedule.is_stream && !reader->schedule.has_ended);
  return (PetscBool)(s->state != TRS_SLOT_FREE || s->next != step || reader->pause);
}

/*
  Wait until a thread can read this step. From then on, the thread uses the dataset until
  set_ready(). Returns false if there is no such step, or if the thread must stop.
*/
static PetscBool wait_for_slot(TrsReader reader, const TrsSlot *s, int64_t step)
{
  PetscBool go_on;

  pthread_mutex_lock(&reader->lock);
  while (must_wait(reader, s, step) && !reader->stop) pthread_cond_wait(&reader->changed, &reader->lock);
  go_on = (PetscBool)(!reader->stop && step < reader->total);
  if (go_on) reader->n_reading++;
  pthread_mutex_unlock(&reader->lock);
  return go_on;
}

/*
  Mark a slot's batch as ready. Its reading began at start_s, which is negative for a batch that was
  kept.
*/
static void set_ready(TrsReader reader, TrsSlot *s, double start_s)
{
  pthread_mutex_lock(&reader->lock);
  if (start_s >= 0 && reader->training && TrsTraceWants(s->batch.step))
    TrsTraceRecord(TRS_TRACE_READER, TRS_TRACE_READ, s->batch.step, start_s, TrsClock(), -1);
  s->state = TRS_SLOT_READY;
  reader->n_reading--;
  pthread_cond_broadcast(&reader->changed);
  pthread_mutex_unlock(&reader->lock);
}

/*
  Read a step's batch into the slot. An error is stored in the slot's fault. Returns false if this
  thread must stop.
*/
static PetscBool read_step(TrsReaderThread *t, int64_t step, TrsShuffle *shuffle, TrsSlot *s)
{
  TrsReader reader = t->reader;
  TrsBatchOrderStep at;

  s->batch.step = step;
  if (s->kept) return PETSC_TRUE;
  TrsBatchOrderAt(&reader->schedule, reader->n_repeated ? step % reader->n_repeated : step, &at);
  s->kept = reader->keeps;
  s->batch.epoch = at.epoch;
  s->batch.position = at.position;
  s->batch.first = at.first;
  s->batch.batch = at.batch;
  s->batch.global_batch = at.global_batch;
  if (reader->spec.is_shuffled)
    TrsShuffleInit(shuffle, (uint64_t)reader->seed, at.epoch, reader->schedule.num_samples);
  t->scratch.n_values = 0;
  TrsBatchRoomUse(&reader->spec, &s->room, &t->scratch, &s->batch);
  if (TrsBatchReadSamples(&reader->spec, reader->spec.is_shuffled ? shuffle : NULL, &t->scratch, &s->batch,
                          &s->fault) != PETSC_SUCCESS)
    return PETSC_TRUE;
  if (!wait_for_room(t, s)) return PETSC_FALSE;
  TrsBatchRoomUse(&reader->spec, &s->room, &t->scratch, &s->batch);
  memset(s->bad_ids, 0, (size_t)reader->spec.n * sizeof(*s->bad_ids));
  if (TrsBatchReadValues(&reader->spec, &t->scratch, &s->batch, s->bad_ids, &s->fault) == PETSC_SUCCESS &&
      reader->maps && !reader->spec.for_device)
    TrsBatchMapIds(&reader->spec, &s->batch);
  return PETSC_TRUE;
}

static void *read_ahead(void *context)
{
  TrsReaderThread *t = context;
  TrsReader reader = t->reader;
  TrsShuffle shuffle;

  TrsCpuHelps();
  (void)TrsCLocale(); /* messages contain numbers, which need a decimal point */
  for (int64_t step = t->first;; step += reader->n_threads) {
    TrsSlot *s = &reader->slots[step % reader->n_slots];
    PetscBool failed;
    double start_s;

    if (!wait_for_slot(reader, s, step)) break;
    start_s = s->kept ? -1 : TrsClock();
    if (!read_step(t, step, &shuffle, s)) break;
    failed = (PetscBool)(s->fault.code != PETSC_SUCCESS);
    /* after this call the slot may already have another step's batch */
    set_ready(reader, s, start_s);
    if (failed) break;
  }
  return NULL;
}

PetscErrorCode TrsReaderThreadsStart(TrsReader reader)
{
  sigset_t all, before;
  int status = 0;

  PetscFunctionBegin;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int64_t i = 0; i < reader->n_threads && status == 0; i++) {
    TrsReaderThread *t = &reader->threads[i];

    status = pthread_create(&t->thread, NULL, read_ahead, t);
    t->running = (PetscBool)(status == 0);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  PetscCheck(status == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "cannot start a thread of the reader: %s",
             strerror(status));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderThreadsStop(TrsReader reader)
{
  PetscFunctionBegin;
  if (!reader->threads) PetscFunctionReturn(PETSC_SUCCESS);
  pthread_mutex_lock(&reader->lock);
  reader->stop = PETSC_TRUE;
  pthread_cond_broadcast(&reader->changed);
  pthread_mutex_unlock(&reader->lock);
  for (int64_t i = 0; i < reader->n_threads; i++) {
    TrsReaderThread *t = &reader->threads[i];

    if (t->running) pthread_join(t->thread, NULL);
    t->running = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- streams --- */

/* Wait until no thread uses the dataset. The caller must hold the lock. */
static PetscErrorCode pause_threads(TrsReader reader)
{
  PetscFunctionBegin;
  reader->pause = PETSC_TRUE;
  while (reader->n_reading > 0) pthread_cond_wait(&reader->changed, &reader->lock);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Let the threads go on with the steps that the stream has now. The caller must hold the lock.
*/
static PetscErrorCode resume_threads(TrsReader reader)
{
  PetscFunctionBegin;
  PetscCall(TrsReaderSteps(reader, &reader->total, NULL));
  reader->pause = PETSC_FALSE;
  pthread_cond_broadcast(&reader->changed);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Append a dataset, and close the files that were read. No thread may use the stream's dataset. */
static PetscErrorCode append(TrsReader reader, TrsDataset *more)
{
  TrsBatchOrderStep next;

  PetscFunctionBegin;
  TrsBatchOrderAt(&reader->schedule, reader->next_out, &next);
  PetscCall(TrsDatasetAppend(reader->spec.dataset, more));
  PetscCall(TrsDatasetCloseBefore(reader->spec.dataset, next.position - reader->spec.before_dataset));
  reader->schedule.num_samples = reader->spec.before_dataset + reader->spec.info->num_samples;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderAppend(TrsReader reader, TrsDataset *more)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCheck(reader->schedule.is_stream && !reader->schedule.has_ended, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "TrsReaderAppend, but the reader reads no stream, or its stream has ended");
  pthread_mutex_lock(&reader->lock);
  ierr = pause_threads(reader);
  if (ierr == PETSC_SUCCESS) ierr = append(reader, more);
  if (ierr == PETSC_SUCCESS)
    ierr = resume_threads(reader);
  else
    (void)resume_threads(reader);
  pthread_mutex_unlock(&reader->lock);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReaderEndStream(TrsReader reader)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  pthread_mutex_lock(&reader->lock);
  reader->schedule.has_ended = PETSC_TRUE;
  ierr = resume_threads(reader);
  pthread_mutex_unlock(&reader->lock);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
