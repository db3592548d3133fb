/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/preflight.h"

#include "core/clock.h"
#include "core/start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRS_POLL_MS = 50, TRS_WAITPID_POLLS = 40 };

/* Time limits for a child. A child reads only metadata, some ten MB per second. */
static const double least_s = 5.0, bytes_per_s = (double)(4 << 20), most_s = 600.0, patience_s = 60.0;

/* The child's report, which it sends with one write. */
typedef struct {
  PetscErrorCode code;
  char text[2048];
} TrsVerdict;

/* The parent's data about the child. */
typedef struct {
  const char *path;
  pid_t child;
  int in; /* read end of the pipe through which the verdict comes */
  double limit_s;
} TrsWait;

static double limit_for(const char *path)
{
  struct stat status;
  const double bytes = stat(path, &status) == 0 ? (double)status.st_size : 0.0;

  return least_s + PetscMin(bytes / bytes_per_s, most_s);
}

/*
  Run the check in the child process. The child never returns from this function. If it crashes, it
  prints nothing and writes no core file. If its parent ends, it ends as well. It ignores stop
  requests, because the parent handles them: if a request killed the child, it would look as if the
  file had killed it.
*/
static void run_check(PetscErrorCode (*check)(void *context), void *context, double limit_s, int out)
{
  const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL},
            requests[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
  /* These limits end the child if the parent does not. */
  const rlim_t cpu_s = (rlim_t)(2.0 * limit_s + 2.0);
  const struct rlimit cpu = {cpu_s, cpu_s}, core = {0, 0};
  int null = open("/dev/null", O_WRONLY);
  TrsVerdict v;

  for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) (void)signal(faults[i], SIG_DFL);
  for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) (void)signal(requests[i], SIG_IGN);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)setrlimit(RLIMIT_CPU, &cpu);
  (void)setrlimit(RLIMIT_CORE, &core);
  if (null >= 0) (void)dup2(null, STDERR_FILENO);
  memset(&v, 0, sizeof(v));
  v.code = check(context);
  if (v.code != PETSC_SUCCESS) snprintf(v.text, sizeof(v.text), "%s", TrsErrorMessage());
  _exit(write(out, &v, sizeof(v)) == (ssize_t)sizeof(v) ? 0 : 1);
}

/* Wait until the pipe has a verdict or is closed. */
static PetscErrorCode wait_for_verdict(const TrsWait *w)
{
  const double start_s = TrsClock();
  struct pollfd pipe_end = {.fd = w->in, .events = POLLIN};
  clockid_t childs;

  PetscFunctionBegin;
  while (poll(&pipe_end, 1, TRS_POLL_MS) <= 0) {
    const double wall_s = TrsClock() - start_s;

    PetscCheck(!trs_stop_requested, PETSC_COMM_SELF, TRS_ERR_STOPPED,
               "stopped on request while %s was being checked; nothing was changed", w->path);
    if (wall_s < w->limit_s) continue;
    PetscCheck(clock_getcpuclockid(w->child, &childs) != 0 || TrsClockOf(childs) < 0.5 * w->limit_s,
               PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s is damaged: the HDF5 library comes to no end reading it (ended after %.0f s)", w->path,
               wall_s);
    PetscCheck(wall_s < w->limit_s + patience_s, PETSC_COMM_SELF, TRS_ERR_IO,
               "%s: it was not read in %.0f s, most of which were spent waiting for its file system", w->path,
               wall_s);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if the signal that ended the child came from outside, for example from the kernel when memory
  ran out. Then the file is not the cause.
*/
static PetscBool is_from_outside(int number)
{
  return (PetscBool)(number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP ||
                     number == SIGUSR1);
}

static PetscErrorCode take_verdict(const TrsWait *w)
{
  TrsVerdict v;
  ssize_t n;
  int status = 0;

  PetscFunctionBegin;
  do {
    /* The verdict fits into one write to the pipe, so it arrives completely or not at all. */
    n = read(w->in, &v, sizeof(v));
  } while (n < 0 && errno == EINTR);
  while (waitpid(w->child, &status, 0) < 0 && errno == EINTR) continue;
  PetscCheck(n == (ssize_t)sizeof(v) || !WIFSIGNALED(status) || !is_from_outside(WTERMSIG(status)),
             PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "%s could not be checked: the process that read it was killed, as the system does when memory "
             "runs out (%s)",
             w->path, strsignal(WTERMSIG(status)));
  PetscCheck(n == (ssize_t)sizeof(v), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s is damaged: the HDF5 library does not survive reading it (%s)", w->path,
             WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "no answer");
  PetscCheck(v.code == PETSC_SUCCESS, PETSC_COMM_SELF, v.code, "%s", v.text);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  End the child. If the child hangs in a dead file system, do not wait for it; it ends when it can.
*/
static void end_child(pid_t child)
{
  const struct timespec nap = {0, TRS_POLL_MS * 1000000L};

  (void)kill(child, SIGKILL);
  for (int i = 0; i < TRS_WAITPID_POLLS && waitpid(child, NULL, WNOHANG) == 0; i++)
    (void)nanosleep(&nap, NULL);
}

static PetscBool skipped;

void TrsPreflightSkip(PetscBool skip)
{
  skipped = skip;
}

PetscErrorCode TrsPreflight(const char *path, PetscErrorCode (*check)(void *context), void *context)
{
  TrsWait w = {.path = path, .limit_s = limit_for(path)};
  int ends[2];
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  if (skipped || pipe(ends) != 0) PetscFunctionReturn(PETSC_SUCCESS);
  w.in = ends[0];
  w.child = fork();
  if (w.child == 0) run_check(check, context, w.limit_s, ends[1]);
  (void)close(ends[1]);
  if (w.child > 0) {
    ierr = wait_for_verdict(&w);
    if (ierr != PETSC_SUCCESS)
      end_child(w.child);
    else
      ierr = take_verdict(&w);
  }
  (void)close(ends[0]);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
