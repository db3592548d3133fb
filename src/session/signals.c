/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/signals.h"

#include "core/events.h"
#include "core/terminal.h"
#include "device/cpu_bind.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TRS_EXIT_AT_ONCE = 130, TRS_POLL_MS = 100, TRS_SIGNAL_STACK = 128 << 10 };

static const int stop_signals[] = {SIGTERM, SIGUSR1, SIGINT, SIGHUP};
enum { TRS_N_STOP_SIGNALS = sizeof(stop_signals) / sizeof(stop_signals[0]) };

static volatile sig_atomic_t ends_at_once;
static PetscBool installed;
static struct timespec requested_at;

struct TrsWatchdogImpl {
  pthread_t thread;
  double limit_s;
  int rank;
  _Atomic int64_t step, beats;
  pthread_mutex_t lock; /* protects `done` */
  pthread_cond_t ended;
  PetscBool done;
};

/*
  True if a signal repeats the earlier request. One event may send several signals to a rank.
  `timeout` of coreutils signals its child and then its process group. A closing terminal sends
  SIGHUP itself and through its shell. A batch system sends SIGTERM together with the SIGUSR1 of the
  job's script.
*/
static PetscBool is_same_request(void)
{
  struct timespec now;
  int64_t ns;

  clock_gettime(CLOCK_MONOTONIC, &now);
  ns = (int64_t)(now.tv_sec - requested_at.tv_sec) * 1000000000 + (now.tv_nsec - requested_at.tv_nsec);
  return (PetscBool)(ns < (int64_t)TRS_SAME_REQUEST_S * 1000000000);
}

/*
  End the process after a second request, in a signal handler. The message is written with write(),
  because a signal handler must not use buffered output. Signals may come to several threads at the
  same time: only the first one writes, and the others wait until it has ended the process.
*/
static void end_at_once(void)
{
  static const char text[] = "trshard: info: a second request to stop: ends at once with exit status 130, "
                             "without another checkpoint\n";
  static atomic_flag is_ending = ATOMIC_FLAG_INIT;

  while (atomic_flag_test_and_set(&is_ending)) (void)pause();
  (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
  _exit(TRS_EXIT_AT_ONCE);
}

static void on_signal(int number)
{
  const int before = errno;

  if (ends_at_once) _exit(TRS_EXIT_AT_ONCE);
  if (!trs_stop_requested) {
    clock_gettime(CLOCK_MONOTONIC, &requested_at);
    trs_stop_requested = number;
  } else if (!is_same_request()) {
    end_at_once();
  }
  errno = before;
}

int TrsSignalsInstall(void)
{
  static char stack[TRS_SIGNAL_STACK];
  const stack_t of_its_own = {.ss_sp = stack, .ss_size = sizeof(stack)};
  struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK},
                   ignore = {.sa_handler = SIG_IGN};
  int failed = 0;

  installed = PETSC_TRUE;
  /* without this stack, matrix multiplications block signals */
  trs_signals_have_stack = sigaltstack(&of_its_own, NULL) == 0;
  sigemptyset(&ignore.sa_mask);
  /* Each handler blocks the other signals, so that two signals cannot both be the first. */
  sigemptyset(&stop.sa_mask);
  for (int i = 0; i < TRS_N_STOP_SIGNALS; i++) sigaddset(&stop.sa_mask, stop_signals[i]);
  for (int i = 0; i < TRS_N_STOP_SIGNALS; i++) {
    struct sigaction before = {.sa_handler = SIG_DFL};

    /* nohup and a shell's background jobs ignore SIGHUP and SIGINT, and the run keeps ignoring
       them. A script may also ignore SIGTERM or SIGUSR1, to survive them. The run inherits this,
       but it must stop at these signals. */
    if ((stop_signals[i] == SIGHUP || stop_signals[i] == SIGINT) &&
        sigaction(stop_signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN)
      continue;
    failed |= sigaction(stop_signals[i], &stop, NULL);
  }
  return failed | sigaction(SIGPIPE, &ignore, NULL) | sigaction(SIGXFSZ, &ignore, NULL);
}

void TrsSignalsEndAtOnce(void)
{
  if (!installed) return;
  ends_at_once = 1;
  if (trs_stop_requested) _exit(TRS_EXIT_AT_ONCE);
}

PetscErrorCode TrsSignalsIgnore(void)
{
  struct sigaction ignore = {.sa_handler = SIG_IGN};

  PetscFunctionBegin;
  sigemptyset(&ignore.sa_mask);
  for (int i = 0; i < TRS_N_STOP_SIGNALS; i++)
    PetscCheck(sigaction(stop_signals[i], &ignore, NULL) == 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "sigaction failed");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void end_process(TrsWatchdog w, double silent_s)
{
  char text[256];
  const int n = snprintf(text, sizeof(text),
                         "trshard: error: rank %d has been in stage '%s' of step %lld for %.0f s "
                         "(-watchdog_seconds): a rank is lost or hangs\n",
                         w->rank, TrsStageName(TrsStageCurrent()), (long long)atomic_load(&w->step),
                         silent_s);

  if (write(STDERR_FILENO, text, (size_t)n) < 0) _exit(TRS_ERR_LOST - 1000);
  _exit(TRS_ERR_LOST - 1000);
}

/*
  Print once why the rank makes no progress. If standard error is blocked as well, print nothing.
*/
static void tell_of_pause(const TrsWatchdog w)
{
  struct pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT};
  char text[160];
  const int n = snprintf(
      text, sizeof(text),
      "trshard: warning: rank %d waits: nobody reads its standard output (a pager, Ctrl-S)\n", w->rank);

  if (poll(&error, 1, 0) == 1 && write(STDERR_FILENO, text, (size_t)n) < 0) return;
}

/* Wait until the next check. Returns false if the watchdog must end. */
static PetscBool wait_for_look(TrsWatchdog w)
{
  struct timespec until;
  PetscBool done;

  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += TRS_POLL_MS * 1000000L;
  until.tv_sec += until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  pthread_mutex_lock(&w->lock);
  while (!w->done && pthread_cond_timedwait(&w->ended, &w->lock, &until) != ETIMEDOUT) continue;
  done = w->done;
  pthread_mutex_unlock(&w->lock);
  return (PetscBool)!done;
}

/*
  The watchdog's thread. It counts checks instead of time, so that a job which was suspended as a
  whole does not count as silent. A rank that waits until somebody reads its standard output does
  not count as silent either.
*/
static void *watch(void *argument)
{
  TrsWatchdog w = (TrsWatchdog)argument;
  PetscBool paused = PETSC_FALSE;
  int64_t seen = -1, silent_ms = 0;

  TrsCpuHelps();
  do {
    const int64_t now = atomic_load(&w->beats) + TrsStageSwitches();

    silent_ms = now == seen ? silent_ms + TRS_POLL_MS : 0;
    seen = now;
    if ((double)silent_ms <= 1000.0 * w->limit_s) continue;
    if (TrsStdoutTakes(0)) end_process(w, (double)silent_ms / 1000.0);
    if (!paused) tell_of_pause(w);
    paused = PETSC_TRUE;
    silent_ms = 0;
  } while (wait_for_look(w));
  return NULL;
}

PetscErrorCode TrsWatchdogStart(double seconds, int rank, TrsWatchdog *watchdog)
{
  pthread_condattr_t clock;
  sigset_t all, before;
  TrsWatchdog w;

  PetscFunctionBegin;
  *watchdog = NULL;
  if (seconds <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&w));
  w->limit_s = seconds;
  w->rank = rank;
  PetscCheck(pthread_condattr_init(&clock) == 0 && pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0 &&
                 pthread_mutex_init(&w->lock, NULL) == 0 && pthread_cond_init(&w->ended, &clock) == 0,
             PETSC_COMM_SELF, TRS_ERR_INTERNAL, "cannot make the watchdog's lock");
  pthread_condattr_destroy(&clock);
  sigfillset(&all); /* block all signals here, because only the main thread handles them */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  PetscCheck(pthread_create(&w->thread, NULL, watch, w) == 0, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "cannot start the watchdog's thread");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  *watchdog = w;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsWatchdogBeat(TrsWatchdog watchdog, int64_t step)
{
  if (!watchdog) return;
  atomic_store(&watchdog->step, step);
  atomic_fetch_add(&watchdog->beats, 1);
}

PetscErrorCode TrsWatchdogStop(TrsWatchdog *watchdog)
{
  TrsWatchdog w = *watchdog;

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  pthread_mutex_lock(&w->lock);
  w->done = PETSC_TRUE;
  pthread_cond_signal(&w->ended);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  pthread_cond_destroy(&w->ended);
  pthread_mutex_destroy(&w->lock);
  PetscCall(PetscFree(*watchdog));
  PetscFunctionReturn(PETSC_SUCCESS);
}
