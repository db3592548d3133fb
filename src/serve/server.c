/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The main thread opens models, waits for signals, looks for newer models, and closes slow
  connections. libmicrohttpd's threads read requests and write answers (http.c), and the batcher's
  threads predict (batcher.c).
*/
#include "serve/server.h"

#include "core/clock.h"
#include "core/print.h"
#include "core/version.h"
#include "serve/follow.h"
#include "serve/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
  TrsServeSettings settings;
  TrsServeFollow follow;
  TrsServeDeltas deltas;
  TrsServeSlot slot;
  TrsServePool pool;
  TrsServeBatcher batcher;
  TrsServeHttp http;
  TrsServeMetrics metrics;
  sigset_t stops; /* signals that end the server, which are blocked in all threads */
} TrsServer;

/* --- start --- */

/* Block the signals that end the server. Threads that start later inherit this. */
static void block_signals(sigset_t *stops)
{
  (void)signal(SIGPIPE, SIG_IGN);
  sigemptyset(stops);
  sigaddset(stops, SIGTERM);
  sigaddset(stops, SIGINT);
  (void)pthread_sigmask(SIG_BLOCK, stops, NULL);
}

/*
  Keep OpenMP and OpenBLAS from starting threads of their own. They read the environment when they
  are loaded, so the program starts itself again. With OMP_NUM_THREADS in the environment, models
  are read by that number of threads.
*/
static void limit_threads(char **argv)
{
  if (getenv("OMP_NUM_THREADS")) return;
  (void)setenv("OMP_NUM_THREADS", "1", 1);
  (void)setenv("OPENBLAS_NUM_THREADS", "1", 0);
  (void)execv("/proc/self/exe", argv);
}

/* Each connection needs a file descriptor. */
static void raise_file_limit(void)
{
  struct rlimit limit;

  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* True if another file may be opened after an error with this one. */
static PetscBool is_of_file(PetscErrorCode ierr)
{
  return (PetscBool)(ierr == TRS_ERR_DATA || ierr == TRS_ERR_NO_INPUT || ierr == TRS_ERR_IO);
}

/* Note when the file of the weights was written. Returns the time since then, in ns. */
static int64_t note_age(TrsServer *s, const char *path)
{
  const int64_t now = TrsServeNow();
  int64_t written = now;
  struct stat file;

  if (stat(path, &file) == 0) written = (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec;
  atomic_store(&s->metrics.written_ns, PetscMin(written, now));
  return PetscMax(now - written, 0);
}

/* Open the newest checkpoint of the folder, or the newest before it if it is damaged. */
static PetscErrorCode open_newest(TrsServer *s)
{
  char *path = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsServeFollowLook(&s->follow, &path));
  PetscCheck(path, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "-serve_follow %s: no checkpoint is there (step-<9 digits>.h5)", s->follow.folder);
  for (;;) {
    ierr = TrsServeSlotCreate(path, s->settings.predictor, &s->slot);
    if (!ierr) (void)note_age(s, path);
    PetscCall(PetscFree(path));
    if (!is_of_file(ierr)) break;
    s->follow.last_failed = PETSC_TRUE;
    PetscCall(TrsServeFollowLookBefore(&s->follow, &path));
    if (!path) break;
    TrsPrint(stderr, "trshard-serve: warning: an older checkpoint is tried: %s\n", TrsErrorMessage());
    TrsErrorClear();
    PetscCall(TrsServeSlotDestroy(&s->slot));
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode start(TrsServer *s)
{
  const TrsServeHttpSettings *http = &s->settings.http;
  const PetscBool in_brackets = (PetscBool)(strchr(http->host, ':') != NULL); /* for IPv6 */

  PetscFunctionBegin;
  raise_file_limit();
  s->follow.folder = s->settings.follow;
  s->deltas.folder = s->settings.deltas;
  /* with -model, the folder's file comes next */
  if (s->settings.model) {
    PetscCall(TrsServeSlotCreate(s->settings.model, s->settings.predictor, &s->slot));
    (void)note_age(s, s->settings.model);
  } else {
    PetscCall(open_newest(s));
  }
  atomic_store(&s->metrics.step, TrsServeSlotStep(s->slot));
  PetscCall(TrsServePoolCreate(s->settings.requests, &s->pool));
  PetscCall(TrsServeBatcherCreate(&s->settings.batching, s->slot, &s->metrics, &s->batcher));
  PetscCall(TrsServeHttpCreate(http, s->slot, s->pool, s->batcher, &s->metrics, &s->http));
  TrsPrint(stdout, "ready      http://%s%s%s:%d/v2/models/%s, after %" PRId64 " updates\n",
           in_brackets ? "[" : "", http->host, in_brackets ? "]" : "", TrsServeHttpPort(s->http), http->name,
           TrsServeSlotStep(s->slot));
  (void)fflush(stdout);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- work --- */

/* Replace the model by one that was opened from a file, and say so. */
static PetscErrorCode replace_model(TrsServer *s, const char *path, TrsServeModel **model)
{
  PetscFunctionBegin;
  PetscCall(TrsServeSlotReplace(s->slot, model));
  (void)note_age(s, path);
  atomic_fetch_add(&s->metrics.changes, 1);
  atomic_store(&s->metrics.step, TrsServeSlotStep(s->slot));
  TrsPrint(stdout, "model      %s, after %" PRId64 " updates\n", path, TrsServeSlotStep(s->slot));
  (void)fflush(stdout);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Replace the model by the folder's newest checkpoint, if it is new. With deltas, it must have seen
  more updates than the model.
*/
static PetscErrorCode take_checkpoint(TrsServer *s)
{
  TrsServeModel *model = NULL;
  char *path = NULL;
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(TrsServeFollowLook(&s->follow, &path));
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  if (!s->deltas.folder || s->follow.step > TrsServeSlotStep(s->slot)) {
    ierr = TrsServeSlotOpen(s->slot, path, &model);
    if (!ierr) ierr = replace_model(s, path, &model);
    if (!ierr) TrsServeDeltasRestart(&s->deltas);
  }
  s->follow.last_failed = (PetscBool)(ierr != PETSC_SUCCESS);
  PetscCall(PetscFree(path));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Look for a newer checkpoint. A failure is reported, and the current model stays. */
static void look_for_checkpoint(TrsServer *s)
{
  PetscErrorCode ierr;

  if (!s->follow.folder) return;
  ierr = take_checkpoint(s);
  if (ierr && !(s->follow.is_unreadable && ierr == TRS_ERR_NO_INPUT)) {
    atomic_fetch_add(&s->metrics.failed_changes, 1);
    TrsPrint(stderr, "trshard-serve: warning: the model stays the same: %s\n", TrsErrorMessage());
  }
  s->follow.is_unreadable = (PetscBool)(ierr == TRS_ERR_NO_INPUT);
  TrsErrorClear();
}

/* --- deltas --- */

/* Apply a delta to the current model. */
static PetscErrorCode apply_delta(TrsServer *s, const char *path, TrshardDeltaFit *fit)
{
  const double begin = TrsClock();

  PetscFunctionBegin;
  PetscCall(TrsServeModelApply(TrsServeSlotModel(s->slot), path, fit));
  atomic_store(&s->metrics.delta_ns, (int64_t)(1e9 * (TrsClock() - begin)));
  atomic_store(&s->metrics.delta_lag_ns, note_age(s, path));
  atomic_fetch_add(&s->metrics.deltas, 1);
  atomic_store(&s->metrics.step, TrsServeSlotStep(s->slot));
  TrsPrint(stdout, "delta      %s, after %" PRId64 " updates\n", path, TrsServeSlotStep(s->slot));
  (void)fflush(stdout);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Report a delta that was refused. The model stays as it is. */
static void refuse_delta(TrsServer *s)
{
  atomic_fetch_add(&s->metrics.refused_deltas, 1);
  TrsPrint(stderr, "trshard-serve: warning: a delta is not applied: %s\n", TrsErrorMessage());
  TrsErrorClear();
}

/* Apply the deltas that remove ids and that fit to the model's place. */
static PetscErrorCode apply_forgets(TrsServer *s)
{
  TrsServeForget *forget = NULL;
  char *path = NULL;

  PetscFunctionBegin;
  for (;;) {
    TrshardDeltaFit fit = TRSHARD_DELTA_FITS;
    PetscErrorCode ierr;

    PetscCall(TrsServeDeltasForget(&s->deltas, TrsServeSlotStep(s->slot), &path, &forget));
    if (!path) break;
    forget->is_done = PETSC_TRUE;
    ierr = apply_delta(s, path, &fit);
    if (ierr) {
      /* its turn may come, or it may be readable with the next model */
      forget->is_done = (PetscBool)(fit != TRSHARD_DELTA_EARLY && ierr == TRS_ERR_DATA);
      if (fit != TRSHARD_DELTA_EARLY) refuse_delta(s);
    }
    TrsErrorClear();
    PetscCall(PetscFree(path));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Apply all deltas after the model's step to a model that is not the current one. */
static PetscErrorCode catch_up(TrsServer *s, TrsServeModel *model, char **last)
{
  TrsServeDeltas all = {.folder = s->deltas.folder};
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  while (!ierr) {
    TrsServeDeltaState state;
    char *path;

    PetscCall(TrsServeDeltasNext(&all, TrsServeModelStep(model), &path, &state));
    if (!path) break;
    ierr = TrsServeModelApply(model, path, NULL);
    if (!ierr) {
      PetscCall(PetscFree(*last));
      *last = path;
    } else {
      PetscCall(PetscFree(path));
    }
  }
  TrsErrorClear();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The next delta does not continue the model's chain. A training that went on from a checkpoint may
  have begun another branch of it. Open the newest checkpoint and apply the deltas after it, and
  replace the model if this gives a newer one.
*/
static PetscErrorCode change_branch(TrsServer *s)
{
  TrsServeModel *model = NULL;
  char *path = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsServeFollowNewest(&s->follow, &path));
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  ierr = TrsServeSlotOpen(s->slot, path, &model);
  if (!ierr) ierr = catch_up(s, model, &path);
  if (!ierr && TrsServeModelStep(model) > TrsServeSlotStep(s->slot)) {
    ierr = replace_model(s, path, &model);
    TrsServeDeltasRestart(&s->deltas);
  }
  PetscCall(TrsServeModelClose(&model));
  PetscCall(PetscFree(path));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Apply the next delta. *more: there may be another one. A delta that cannot be read is reported
  once, and tried again at the next look.
*/
static PetscErrorCode take_delta(TrsServer *s, PetscBool *more)
{
  TrshardDeltaFit fit = TRSHARD_DELTA_FITS;
  TrsServeDeltaState state;
  char *path = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *more = PETSC_FALSE;
  PetscCall(apply_forgets(s));
  PetscCall(TrsServeDeltasNext(&s->deltas, TrsServeSlotStep(s->slot), &path, &state));
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  ierr = apply_delta(s, path, &fit);
  if (ierr) {
    if (state == TRS_SERVE_DELTA_NEW) refuse_delta(s);
    TrsErrorClear();
    TrsServeDeltasNote(&s->deltas, ierr == TRS_ERR_DATA ? TRS_SERVE_DELTA_REFUSED : TRS_SERVE_DELTA_FAILED);
    if (s->follow.folder && fit != TRSHARD_DELTA_FITS && change_branch(s)) {
      TrsPrint(stderr, "trshard-serve: warning: the model stays the same: %s\n", TrsErrorMessage());
      TrsErrorClear();
    }
  } else {
    TrsServeDeltasNote(&s->deltas, TRS_SERVE_DELTA_NEW); /* the file that was refused may fit now */
    *more = PETSC_TRUE;
  }
  PetscCall(PetscFree(path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Look for the next delta. Returns true if there may be another one. */
static PetscBool look_for_delta(TrsServer *s)
{
  PetscBool more = PETSC_FALSE;
  PetscErrorCode ierr;

  if (!s->deltas.folder) return PETSC_FALSE;
  ierr = take_delta(s, &more);
  if (ierr && !s->deltas.is_unreadable)
    TrsPrint(stderr, "trshard-serve: warning: no deltas are applied: %s\n", TrsErrorMessage());
  s->deltas.is_unreadable = (PetscBool)(ierr != PETSC_SUCCESS);
  TrsErrorClear();
  return more;
}

/* Wait for a signal that ends the server. Returns its number, or 0 after `seconds`. */
static int wait_for_signal(const TrsServer *s, double seconds)
{
  const struct timespec time = {.tv_sec = (time_t)seconds,
                                .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))};
  const int number = sigtimedwait(&s->stops, NULL, &time);

  return number > 0 ? number : 0;
}

static void serve(TrsServer *s)
{
  const PetscBool looks = (PetscBool)(s->follow.folder || s->deltas.folder);
  double look = TrsClock() + (s->deltas.folder ? 0.0 : s->settings.follow_s), close = TrsClock() + 1.0;

  for (;;) {
    const double now = TrsClock(), next = looks ? PetscMin(look, close) : close;

    if (wait_for_signal(s, PetscMax(next - now, 0.0))) return;
    if (TrsClock() >= close) {
      TrsServeHttpCloseSlow(s->http);
      close = TrsClock() + 1.0;
    }
    if (TrsClock() >= look && looks) {
      const PetscBool more = look_for_delta(s);

      /* after the last delta, so that a checkpoint of the same step is not needed */
      if (!more) look_for_checkpoint(s);
      look = TrsClock() + (more ? 0.0 : s->settings.follow_s);
    }
  }
}

/* Answer the requests that have come. A second signal ends this at once. */
static void drain(TrsServer *s)
{
  const double end = TrsClock() + s->settings.drain_s;

  TrsServeHttpDrain(s->http);
  while (TrsServeHttpUnanswered(s->http) > 0 && TrsClock() < end)
    if (wait_for_signal(s, 0.01)) break;
  TrsPrint(stdout, "stopped    %" PRId64 " samples predicted\n", atomic_load(&s->metrics.samples));
  (void)fflush(stdout);
}

static PetscErrorCode run(TrsServer *s)
{
  PetscFunctionBegin;
  PetscCall(start(s));
  serve(s);
  drain(s);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode stop(TrsServer *s)
{
  PetscFunctionBegin;
  TrsServeBatcherEnd(s->batcher); /* from here on, no connection waits */
  PetscCall(TrsServeHttpDestroy(&s->http));
  PetscCall(TrsServeBatcherDestroy(&s->batcher));
  PetscCall(TrsServePoolDestroy(&s->pool));
  PetscCall(TrsServeSlotDestroy(&s->slot));
  PetscCall(PetscFree(s->deltas.forget));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_program(int argc, char **argv, TrsServer *s)
{
  static const char about[] = "trshard-serve " TRS_VERSION
                              ": answers prediction requests over HTTP (Open Inference Protocol v2)\n"
                              "  trshard-serve -model model.h5 -serve_port 8000 [-option value ...]\n";
  PetscBool help, all, version;
  TrsOptions options = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsOptionsCreate(MPI_COMM_SELF, argc, argv, trs_serve_options, trs_n_serve_options, &options));
  PetscCall(TrsOptionsHelpWanted(options, &help, &all));
  PetscCall(TrsOptionsGetBool(options, "-version", &version, NULL));
  if (help) {
    ierr = TrsOptionsHelp(options, MPI_COMM_SELF, about);
  } else if (version) {
    TrsPrint(stdout, "trshard-serve %s (%s)\n", TRS_VERSION, TrsVersionCommit());
    ierr = PETSC_SUCCESS;
  } else {
    ierr = TrsServeSettingsFromOptions(options, &s->settings);
    if (!ierr) limit_threads(argv);
    if (!ierr) ierr = run(s);
    if (!ierr) ierr = stop(s); /* after an error the process ends, and its threads with it */
  }
  PetscCall(TrsOptionsDestroy(&options));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsServeMain(int argc, char **argv)
{
  static TrsServer s;
  PetscErrorCode ierr;

  block_signals(&s.stops);
  ierr = run_program(argc, argv, &s);
  if (ierr) TrsPrint(stderr, "trshard-serve: error: %s\n", TrsErrorMessage());
  return TrsExitStatus(ierr);
}
