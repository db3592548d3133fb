/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRS_MAX_SECONDS = 60 };

/* What the child tells, in one write. */
typedef struct {
  PetscErrorCode code;
  char text[2048];
} TrsVerdict;

/* The child: dies silently, writes no core, never returns. */
static void run_check(PetscErrorCode (*check)(void *context), void *context, int out)
{
  const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
  const struct rlimit cpu = {TRS_MAX_SECONDS, TRS_MAX_SECONDS}, core = {0, 0};
  int null = open("/dev/null", O_WRONLY);
  TrsVerdict v;

  for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) (void)signal(signals[i], SIG_DFL);
  (void)setrlimit(RLIMIT_CPU, &cpu);
  (void)setrlimit(RLIMIT_CORE, &core);
  if (null >= 0) (void)dup2(null, STDERR_FILENO);
  memset(&v, 0, sizeof(v));
  v.code = check(context);
  if (v.code != PETSC_SUCCESS) snprintf(v.text, sizeof(v.text), "%s", TrsErrorMessage());
  _exit(write(out, &v, sizeof(v)) == (ssize_t)sizeof(v) ? 0 : 1);
}

static PetscErrorCode wait_for_child(const char *path, pid_t child, int in)
{
  TrsVerdict v;
  ssize_t n;
  int status = 0;

  PetscFunctionBegin;
  do {
    n = read(in, &v, sizeof(v)); /* no more than a pipe takes at once: whole or nothing */
  } while (n < 0 && errno == EINTR);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  PetscCheck(n == (ssize_t)sizeof(v), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s is damaged: the HDF5 library does not survive reading it (%s)", path,
             WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "no answer");
  PetscCheck(v.code == PETSC_SUCCESS, PETSC_COMM_SELF, v.code, "%s", v.text);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPreflight(const char *path, PetscErrorCode (*check)(void *context), void *context)
{
  int ends[2];
  pid_t child;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (pipe(ends) != 0) PetscFunctionReturn(PETSC_SUCCESS);
  child = fork();
  if (child == 0) run_check(check, context, ends[1]);
  (void)close(ends[1]);
  ierr = child > 0 ? wait_for_child(path, child, ends[0]) : PETSC_SUCCESS;
  (void)close(ends[0]);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
