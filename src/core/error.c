/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/error.h"

#include "core/clock.h"
#include "core/names.h"
#include "core/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TRS_MAX_TEXT = 2048, TRS_MAX_TRACE = 4096 };

/*
  Seconds that a failed rank waits for the others. If the ranks have agreed on the error, all of
  them know it, so only slow ranks arrive late.
*/
static const double patience_s = 3.0, agreed_patience_s = 60.0;

/* The first error of this thread, and the functions through which it was returned. */
static _Thread_local struct {
  PetscErrorCode code;
  PetscBool agreed;
  char text[TRS_MAX_TEXT];
  char trace[TRS_MAX_TRACE];
} raised;

static int n_installed; /* number of handlers that TrsErrorInstall() has pushed */

static void keep_error(int line, const char *function, const char *file, PetscErrorCode ierr,
                       const char *message)
{
  size_t used;

  if (raised.code == PETSC_SUCCESS) {
    if (!message) (void)PetscErrorMessage(ierr, &message, NULL);
    raised.code = ierr;
    snprintf(raised.text, sizeof(raised.text), "%s", message && *message ? message : "unknown error");
  }
  used = strlen(raised.trace);
  snprintf(raised.trace + used, sizeof(raised.trace) - used, "\n%s() at %s:%d", function ? function : "?",
           file ? file : "?", line);
}

/*
  True if PETSc's allocator has run out of memory before PETSc started. It then raises an error
  whose code is the caller's line number. No other PETSc function that we call before PETSc's start
  can fail, so an error that is first seen here comes from the allocator.
*/
static PetscBool is_out_of_memory(PetscErrorType type)
{
  return (PetscBool)(type == PETSC_ERROR_REPEAT && raised.code == PETSC_SUCCESS && !PetscInitializeCalled);
}

PetscErrorCode TrsErrorRaise(MPI_Comm comm, int line, const char *function, const char *file,
                             PetscErrorCode ierr, PetscErrorType type, const char *format, ...)
{
  char text[TRS_MAX_TEXT];
  va_list arguments;

  (void)comm;
  if (is_out_of_memory(type)) {
    ierr = PETSC_ERR_MEM;
    keep_error(line, function, file, ierr, "out of memory");
  } else if (type == PETSC_ERROR_INITIAL && format && *format) {
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    keep_error(line, function, file, ierr, text);
  } else {
    keep_error(line, function, file, ierr, NULL);
  }
  return ierr;
}

/*
  Keep an error that PETSc itself has found. An error of its allocator becomes PETSC_ERR_MEM.
*/
static PetscErrorCode keep_petsc_error(MPI_Comm comm, int line, const char *function, const char *file,
                                       PetscErrorCode ierr, PetscErrorType type, const char *message,
                                       void *context)
{
  (void)comm;
  (void)context;
  if (type == PETSC_ERROR_INITIAL && function &&
      (strcmp(function, "PetscMallocAlign") == 0 || strcmp(function, "PetscReallocAlign") == 0)) {
    ierr = PETSC_ERR_MEM;
    message = "out of memory";
  }
  keep_error(line, function, file, ierr, type == PETSC_ERROR_INITIAL && message && *message ? message : NULL);
  return ierr;
}

PetscErrorCode TrsErrorInstall(void)
{
  PetscFunctionBegin;
  if (!PetscInitializeCalled) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPushErrorHandler(keep_petsc_error, NULL));
  n_installed++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsErrorRemove(void)
{
  PetscFunctionBegin;
  if (n_installed == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPopErrorHandler());
  n_installed--;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsErrorMessage(void)
{
  return raised.text;
}

const char *TrsErrorTrace(void)
{
  return raised.trace;
}

void TrsErrorClear(void)
{
  raised.code = PETSC_SUCCESS;
  raised.agreed = PETSC_FALSE;
  raised.text[0] = raised.trace[0] = '\0';
}

int TrsExitStatus(PetscErrorCode ierr)
{
  if (ierr == PETSC_SUCCESS) return 0;
  if (ierr == PETSC_ERR_MEM) return TRS_ERR_MEMORY - 1000;
  if (ierr >= TRS_ERR_OPTION && ierr <= TRS_ERR_NOT_FINITE) return ierr - 1000;
  return TRS_ERR_INTERNAL - 1000;
}

PetscErrorCode TrsAgree(MPI_Comm comm, PetscErrorCode ierr)
{
  int rank, size, first;
  struct {
    PetscErrorCode code;
    char text[TRS_MAX_TEXT];
  } shared;

  PetscFunctionBegin;
  PetscCall(TrsRankOf(comm, &rank, &size));
  first = ierr == PETSC_SUCCESS ? size : rank;
  if (comm != MPI_COMM_SELF) PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm));
  if (first == size) PetscFunctionReturn(PETSC_SUCCESS);
  memset(&shared, 0, sizeof(shared));
  if (rank == first) {
    shared.code = ierr;
    snprintf(shared.text, sizeof(shared.text), "%s", raised.code ? raised.text : "error without a message");
  }
  if (comm != MPI_COMM_SELF) PetscCallMPI(MPI_Bcast(&shared, (int)sizeof(shared), MPI_BYTE, first, comm));
  if (rank != first) TrsErrorClear();
  if (raised.code == PETSC_SUCCESS)
    (void)PetscError(PETSC_COMM_SELF, __LINE__, PETSC_FUNCTION_NAME, __FILE__, shared.code,
                     PETSC_ERROR_INITIAL, "%s", shared.text);
  raised.agreed = PETSC_TRUE;
  PetscFunctionReturn(shared.code);
}

/* Wait until a request completes or limit_s seconds have passed. A negative limit waits forever. */
static int completes(MPI_Request *request, double limit_s)
{
  /* each sleep is longer than the last, because ranks mostly end at the same time */
  struct timespec nap = {0, 50000};
  double start = TrsClock();
  int done = 0;

  while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
    if (limit_s >= 0 && TrsClock() - start > limit_s) return 0;
    nanosleep(&nap, NULL);
    nap.tv_nsec = PetscMin(2 * nap.tv_nsec, 5000000);
  }
  return done;
}

static PetscBool wants_trace(void)
{
#if defined(NDEBUG)
  PetscBool wanted = PETSC_FALSE;
#else
  PetscBool wanted = PETSC_TRUE;
#endif

  (void)PetscOptionsGetBool(NULL, NULL, "-error_traceback", &wanted, NULL);
  return wanted;
}

/*
  Print an error. A stop on request is not called an error. The text is written in one piece, so
  that the outputs of several ranks do not mix. `from` is "" or " (rank 2)".
*/
static void print_error(PetscErrorCode ierr, const char *text, const char *trace, const char *from)
{
  char safe_text[2 * TRS_MAX_TEXT], safe_trace[2 * TRS_MAX_TRACE];
  char line[sizeof(safe_text) + sizeof(safe_trace) + 128];
  int n;

  TrsNameEscape(text, safe_text, sizeof(safe_text));
  TrsNameEscape(trace, safe_trace, sizeof(safe_trace));
  n = snprintf(line, sizeof(line), "trshard: %s%s: %s%s%s\n", ierr == TRS_ERR_STOPPED ? "info" : "error",
               from, safe_text,
               TrsExitStatus(ierr) == TRS_ERR_INTERNAL - 1000 ? " (internal error, please report)" : "",
               safe_trace);
  fwrite(line, 1, (size_t)n, stderr);
  fflush(stderr);
}

PetscBool TrsErrorSettle(MPI_Comm comm, PetscErrorCode *ierr)
{
  int rank, size, first;
  double limit_s = *ierr == PETSC_SUCCESS ? -1.0 : raised.agreed ? agreed_patience_s : patience_s;
  char text[TRS_MAX_TEXT];
  MPI_Request request;

  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  first = *ierr == PETSC_SUCCESS ? size : rank;
  if (*ierr != PETSC_SUCCESS && raised.code == PETSC_SUCCESS)
    snprintf(raised.text, sizeof(raised.text), "error without a message");
  MPI_Iallreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm, &request);
  if (!completes(&request, limit_s)) return PETSC_FALSE;
  if (first == size) return PETSC_TRUE;
  snprintf(text, sizeof(text), "%s", raised.text);
  MPI_Bcast(ierr, 1, MPI_INT, first, comm);
  MPI_Bcast(text, (int)sizeof(text), MPI_CHAR, first, comm);
  if (rank == first) return PETSC_TRUE;
  TrsErrorClear();
  raised.code = *ierr;
  snprintf(raised.text, sizeof(raised.text), "%s", text);
  return PETSC_TRUE;
}

int TrsErrorFinish(MPI_Comm comm, PetscErrorCode ierr)
{
  const PetscBool settled = TrsErrorSettle(comm, &ierr);
  /* in PETSc 3.22, options must not be queried if memory ran out while PETSc was storing an
     option */
  const char *trace = ierr != PETSC_ERR_MEM && wants_trace() ? raised.trace : "";
  char from[32] = "";
  int rank, size;

  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  if (!settled && size > 1) snprintf(from, sizeof(from), " (rank %d)", rank);
  if (ierr != PETSC_SUCCESS && (rank == 0 || !settled)) print_error(ierr, raised.text, trace, from);
  if (!settled) MPI_Abort(comm, TrsExitStatus(ierr));
  return TrsExitStatus(ierr);
}
