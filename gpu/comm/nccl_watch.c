/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/comm/nccl_watch.h"

#include "core/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_S 0.1  /* time between two checks */
#define GRACE_S      20.0 /* time that an aborted call has to return */

/*
  The lock protects all fields except the thread. The watching thread holds it while it aborts
  communicators.
*/
static struct {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  pthread_t thread;
  PetscBool runs, stops;
  const char *what;    /* the main thread's current call, or NULL */
  PetscBool can_abort; /* false: nothing ends this call but the end of the process */
  double since_s, limit_s;
  TrsNcclEnd end; /* how this call ended */
  PetscBool (*has_failed)(void);
  void (*abort_all)(void);
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* End the process, because the main thread's call cannot be ended. */
static void give_up(void)
{
  if (watch.end == TRS_NCCL_FAILED)
    (void)fprintf(stderr, "trshard: error: NCCL: %s did not end when it was aborted after a failure\n",
                  watch.what);
  else
    (void)fprintf(stderr,
                  "trshard: error: NCCL: %s did not end in %g s (-comm_wait_seconds)%s; a rank or the "
                  "network hangs\n",
                  watch.what, watch.limit_s, watch.can_abort ? ", nor when it was aborted" : "");
  _exit(TrsExitStatus(TRS_ERR_UNAVAILABLE));
}

/* Check the main thread's current call. Called every LOOK_EVERY_S. */
static void look(void)
{
  const double took_s = TrsClock() - watch.since_s;

  if (watch.end == TRS_NCCL_IN_TIME && (took_s > watch.limit_s || watch.has_failed())) {
    if (took_s > watch.limit_s && !watch.can_abort) give_up();
    watch.end = took_s > watch.limit_s ? TRS_NCCL_LATE : TRS_NCCL_FAILED;
    watch.since_s += took_s;
    watch.abort_all();
  } else if (watch.end != TRS_NCCL_IN_TIME && took_s > GRACE_S) {
    give_up();
  }
}

static void *work(void *unused)
{
  (void)pthread_mutex_lock(&watch.lock);
  while (!watch.stops) {
    const double until_s = TrsClock() + LOOK_EVERY_S;
    const struct timespec until = {(time_t)until_s, (long)((until_s - (double)(time_t)until_s) * 1e9)};

    (void)pthread_cond_timedwait(&watch.wake, &watch.lock, &until);
    if (watch.what) look();
  }
  (void)pthread_mutex_unlock(&watch.lock);
  return unused;
}

/* The thread waits by the clock of durations, because the clock of the day may be set back. */
static int start_thread(void)
{
  pthread_condattr_t attributes;
  int error = pthread_condattr_init(&attributes);

  if (!error) error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  if (!error) error = pthread_cond_init(&watch.wake, &attributes);
  (void)pthread_condattr_destroy(&attributes);
  return error ? error : pthread_create(&watch.thread, NULL, work, NULL);
}

PetscErrorCode TrsNcclWatchStart(PetscBool (*has_failed)(void), void (*abort_all)(void))
{
  PetscFunctionBegin;
  if (watch.runs) PetscFunctionReturn(PETSC_SUCCESS);
  watch.has_failed = has_failed;
  watch.abort_all = abort_all;
  watch.stops = PETSC_FALSE;
  PetscCheck(start_thread() == 0, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "the system gives no thread to watch NCCL");
  watch.runs = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsNcclWatchStop(void)
{
  if (!watch.runs) return;
  (void)pthread_mutex_lock(&watch.lock);
  watch.stops = PETSC_TRUE;
  (void)pthread_cond_signal(&watch.wake);
  (void)pthread_mutex_unlock(&watch.lock);
  (void)pthread_join(watch.thread, NULL);
  (void)pthread_cond_destroy(&watch.wake);
  watch.runs = PETSC_FALSE;
}

void TrsNcclEnter(const char *what, double limit_s, PetscBool can_abort)
{
  (void)pthread_mutex_lock(&watch.lock);
  watch.what = what;
  watch.since_s = TrsClock();
  watch.limit_s = limit_s;
  watch.can_abort = can_abort;
  watch.end = TRS_NCCL_IN_TIME;
  (void)pthread_mutex_unlock(&watch.lock);
}

TrsNcclEnd TrsNcclLeave(void)
{
  TrsNcclEnd end;

  (void)pthread_mutex_lock(&watch.lock);
  watch.what = NULL;
  end = watch.end;
  (void)pthread_mutex_unlock(&watch.lock);
  return end;
}
