/* SPDX-License-Identifier: BSD-3-Clause */
/*
  trshard is one SPMD binary. It starts MPI and PETSc, reads the options, runs the task and ends
  with a documented exit status on every rank.
*/
#include "core/start.h"
#include "core/version.h"
#include "run/run_options.h"
#include "run/signals.h"
#include "run/task_bench.h"
#include "run/task_eval.h"
#include "run/task_plan.h"
#include "run/task_predict.h"
#include "run/task_train.h"

#include <stdio.h>

static PetscErrorCode print_version(void)
{
  char libraries[512];

  PetscFunctionBegin;
  TrsVersionLibraries(libraries, sizeof(libraries));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s %s (%s), %s\n", TRS_NAME, TRS_VERSION, TrsVersionCommit(),
                        libraries));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run_task(TrsOptions options)
{
#define RUN_OF_TASK(KIND, word, Name) TrsRun##Name,
  static PetscErrorCode (*const runs[])(MPI_Comm comm, TrsOptions options) = {TRS_TASKS(RUN_OF_TASK)};
  int task;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-task", &task, NULL));
  if (task == TRS_TASK_PLAN || task == TRS_TASK_BENCH) TrsSignalsEndAtOnce();
  PetscCall(runs[task](PETSC_COMM_WORLD, options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(int argc, char **argv)
{
  PetscBool help, all, version;
  char warning[512];
  TrsOptions options;

  PetscFunctionBegin;
  TrsStartWarning(warning, sizeof(warning));
  if (warning[0]) PetscCall(PetscFPrintf(PETSC_COMM_WORLD, PETSC_STDERR, "trshard: warning: %s\n", warning));
  PetscCall(TrsStartCheckStack());
  PetscCall(TrsOptionsCreate(PETSC_COMM_WORLD, argc, argv, trs_option_groups, trs_n_option_groups, &options));
  PetscCall(TrsOptionsHelpWanted(options, &help, &all));
  PetscCall(TrsOptionsGetBool(options, "-version", &version, NULL));
  if (help)
    PetscCall(TrsOptionsHelp(options, PETSC_COMM_WORLD));
  else if (version)
    PetscCall(print_version());
  else
    PetscCall(run_task(options));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  PetscErrorCode ierr;
  MPI_Comm comm;
  int status, rank;

  if (TrsSignalsInstall() != 0 || TrsStart(argc, argv)) return TRS_ERR_INTERNAL - 1000;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm); /* used only for the end of the run */
  ierr = run(argc, argv);
  /* Called after success, too, because another rank may have failed late. */
  status = TrsErrorFinish(comm, ierr);
  /* Mpirun ends all ranks as soon as one has left with a failure. */
  if (TrsSignalsIgnore()) status = TRS_ERR_INTERNAL - 1000;
  MPI_Comm_free(&comm);
  ierr = TrsStop();
  if (ierr == PETSC_SUCCESS || (ierr == TRS_ERR_IO && status != 0)) return status;
  if (ierr == TRS_ERR_IO && rank == 0)
    fprintf(stderr, "trshard: error: standard output cannot be written: its disk is full?\n");
  return TrsExitStatus(ierr);
}
