/* SPDX-License-Identifier: BSD-3-Clause */
/* The program's main(), and TrshardRun(), which runs tasks inside another program. */
#include "api/impl.h"
#include "bench/task_bench.h"
#include "core/print.h"
#include "core/start.h"
#include "core/version.h"
#include "run/run_options.h"
#include "run/task_eval.h"
#include "run/task_plan.h"
#include "run/task_predict.h"
#include "run/task_train.h"
#include "session/left_over.h"
#include "session/outputs.h"
#include "session/signals.h"

#include <signal.h>

static PetscErrorCode print_version(MPI_Comm comm)
{
  char libraries[512];

  PetscFunctionBegin;
  TrsVersionLibraries(libraries, sizeof(libraries));
  PetscCall(PetscPrintf(comm, "%s %s (%s), %s\n", TRS_NAME, TRS_VERSION, TrsVersionCommit(), libraries));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_task(MPI_Comm comm, TrsOptions options)
{
#define RUN_OF_TASK(KIND, word, Name) TrsRun##Name,
  static PetscErrorCode (*const runs[])(MPI_Comm comm, TrsOptions options) = {TRS_TASKS(RUN_OF_TASK)};
#define TEXT_OF_TASK(KIND, word, Name) "-task " #word,
  static const char *const texts[] = {TRS_TASKS(TEXT_OF_TASK)};
  int task;

  PetscFunctionBegin;
  PetscCall(TrsOutputsCheckPaths(comm, options));
  TrsOptionsForgetReads(options);
  PetscCall(TrsOptionsGetEnum(options, "-task", &task, NULL));
  if (task == TRS_TASK_PLAN || task == TRS_TASK_BENCH) TrsSignalsEndAtOnce();
  PetscCall(runs[task](comm, options));
  PetscCall(TrsOptionsTellUnread(options, texts[task]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Run the task that the options select. */
static PetscErrorCode run_options(MPI_Comm comm, TrsOptions options)
{
  static const char about[] = TRS_NAME " " TRS_VERSION ": trains and shards recommendation models\n"
                                       "  mpirun -n 4 " TRS_NAME
                                       " -options_file run.opts [-option value ...]\n";
  PetscBool help, all, version;

  PetscFunctionBegin;
  PetscCall(TrsOptionsHelpWanted(options, &help, &all));
  PetscCall(TrsOptionsGetBool(options, "-version", &version, NULL));
  if (help)
    PetscCall(TrsOptionsHelp(options, comm, about));
  else if (version)
    PetscCall(print_version(comm));
  else
    PetscCall(run_task(comm, options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_program(int argc, char **argv)
{
  char warning[512];
  TrsOptions options;

  PetscFunctionBegin;
  TrsStartWarning(warning, sizeof(warning));
  if (warning[0]) PetscCall(PetscFPrintf(PETSC_COMM_WORLD, PETSC_STDERR, "trshard: warning: %s\n", warning));
  PetscCall(TrsStartCheckStack());
  PetscCall(TrsOptionsCreate(PETSC_COMM_WORLD, argc, argv, trs_option_groups, trs_n_option_groups, &options));
  PetscCall(run_options(PETSC_COMM_WORLD, options));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrshardMain(int argc, char **argv)
{
  PetscErrorCode ierr;
  MPI_Comm comm;
  int status;

  if (TrsSignalsInstall() != 0 || TrsStart(argc, argv)) return TRS_ERR_INTERNAL - 1000;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm); /* used only at the end of the run */
  ierr = run_program(argc, argv);
  /* Must also be called after success, because another rank may have failed late. */
  status = TrsErrorFinish(comm, ierr);
  /* Ignore signals, because mpirun ends all ranks as soon as one of them exits with a failure. */
  if (TrsSignalsIgnore()) status = TRS_ERR_INTERNAL - 1000;
  MPI_Comm_free(&comm);
  ierr = TrsStop((PetscBool)(status != 0 && status != TRS_ERR_STOPPED - 1000));
  return ierr == PETSC_SUCCESS || (ierr == TRS_ERR_IO && status != 0) ? status : TrsExitStatus(ierr);
}

/* Parse a text as options. */
static PetscErrorCode read_options(MPI_Comm comm, const char *text, TrsOptions *options)
{
  TrsText words = {.data = NULL};
  PetscErrorCode ierr = TrsApiAddWord(&words, TRS_NAME);

  PetscFunctionBegin;
  if (!ierr) ierr = TrsApiAddText(&words, "options", text);
  ierr = TrsApiOptionsOfWords(comm, ierr, &words, trs_option_groups, trs_n_option_groups, options);
  PetscCall(TrsTextFree(&words));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The run and its end use different communicators, because a failed rank may reach the end while
  others are still in the run. If not all ranks reach the end, neither communicator is freed.
*/
static PetscErrorCode run_inside(MPI_Comm of, const char *text)
{
  TrsOptions options = NULL;
  MPI_Comm comm, end;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  TrsRunForget();
  PetscCallMPI(MPI_Comm_dup(of, &comm));
  PetscCallMPI(MPI_Comm_dup(of, &end));
  TrsPrintInstall();
  ierr = read_options(comm, text, &options);
  if (!ierr) ierr = run_options(comm, options);
  TrsPrintRemove();
  if (TrsErrorSettle(end, &ierr)) {
    (void)TrsRunClear(); /* keep the message of the first error */
    PetscCallMPI(MPI_Comm_free(&comm));
    PetscCallMPI(MPI_Comm_free(&end));
  }
  if (options) PetscCall(TrsOptionsDestroy(&options));
  trs_stop_requested = 0;
  PetscFunctionReturn(ierr);
}

int TrshardRun(MPI_Comm comm, const char *options)
{
  const int status = TrsApiStart(comm);

  return status ? status : TRS_API_CALL(run_inside(comm, options));
}

int TrshardRunFortran(int comm, const char *options)
{
  return TrshardRun(MPI_Comm_f2c((MPI_Fint)comm), options);
}

void TrshardRequestStop(void)
{
  trs_stop_requested = SIGTERM;
}
