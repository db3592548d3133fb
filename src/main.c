/* SPDX-License-Identifier: BSD-3-Clause */
/*
  trshard: one SPMD binary. Start MPI and PETSc, read the options, run the task, end with a documented exit status on every rank.
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
  int task;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-task", &task, NULL));
  if (task == TRS_TASK_PLAN || task == TRS_TASK_BENCH) TrsSignalsEndAtOnce();
  switch (task) {
  case TRS_TASK_TRAIN: PetscCall(TrsRunTrain(PETSC_COMM_WORLD, options)); break;
  case TRS_TASK_EVAL: PetscCall(TrsRunEval(PETSC_COMM_WORLD, options)); break;
  case TRS_TASK_PLAN: PetscCall(TrsRunPlan(PETSC_COMM_WORLD, options)); break;
  case TRS_TASK_BENCH: PetscCall(TrsRunBench(PETSC_COMM_WORLD, options)); break;
  default: PetscCall(TrsRunPredict(PETSC_COMM_WORLD, options)); break;
  }
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
  PetscCall(TrsSignalsInstall());
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

  if (TrsStart(argc, argv)) return TRS_ERR_INTERNAL - 1000;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm); /* for the end of the run alone */
  ierr = run(argc, argv);
  status = TrsErrorFinish(comm, ierr); /* also after success: another rank may have failed late */
  if (TrsSignalsIgnore())
    status = TRS_ERR_INTERNAL - 1000; /* mpirun ends all once one has left with a failure */
  MPI_Comm_free(&comm);
  ierr = TrsStop();
  if (ierr == PETSC_SUCCESS || (ierr == TRS_ERR_IO && status != 0)) return status;
  if (ierr == TRS_ERR_IO && rank == 0)
    fprintf(stderr, "trshard: error: standard output cannot be written: its disk is full?\n");
  return TrsExitStatus(ierr);
}
