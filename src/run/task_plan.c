/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/task_plan.h"

#include "plan/planner.h"
#include "run/column_cuts.h"
#include "run/session.h"
#include "run/step_prediction.h"
#include "run/text_output.h"
#include "train/model_parallel.h"

enum { TRS_SHOWN_TABLES = 50 };

/*
  Read the tables. If a dataset is there, it supplies what the options leave open. If the options
  name the tables, no dataset needs to be there.
*/
static PetscErrorCode read_tables(MPI_Comm comm, TrsOptions options, TrsTableConfigs *tables)
{
  const char *const *paths = NULL, *const * names;
  int n_paths = 0, n = 0, rank, absent;
  TrsDataset dataset = NULL;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetStrings(options, "-data_train", &n_paths, &paths, NULL));
  PetscCall(TrsOptionsGetStrings(options, "-tables", &n, &names, NULL));
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  absent = n_paths == 0 || (rank == 0 && n > 0 && !TrsDatasetIsThere(n_paths, paths));
  PetscCallMPI(MPI_Bcast(&absent, 1, MPI_INT, 0, comm));
  if (absent) {
    PetscCall(TrsTableConfigsFromOptions(options, NULL, tables));
  } else {
    PetscCall(TrsDatasetOpen(comm, n_paths, paths, &dataset));
    PetscCall(TrsSessionTables(options, dataset, tables));
    PetscCall(TrsDatasetClose(&dataset));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Tell the user which tables the planner leaves out. Like TorchRec's, it leaves out tables of
  another device group.
*/
static PetscErrorCode name_left_out(MPI_Comm comm, const TrsTableConfigs *tables, const TrsShardingPlan *plan)
{
  int n = 0;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];

    if (!table->constraints.device_group || TrsShardingPlanFind(plan, table->name)) continue;
    if (n++ < TRS_SHOWN_TABLES)
      PetscCall(PetscPrintf(comm, "not in this plan: table %s, whose device group is %s\n", table->name,
                            table->constraints.device_group));
  }
  if (n > TRS_SHOWN_TABLES)
    PetscCall(PetscPrintf(comm, "not in this plan: %d tables more\n", n - TRS_SHOWN_TABLES));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print the predicted step of the slowest rank, if the options give the rates of dense layers. A
  plan needs no model: where the options give none that takes the tables, the line says so.
  Logically collective.
*/
static PetscErrorCode print_step(MPI_Comm comm, TrsOptions options, const TrsTableConfigs *tables,
                                 const TrsShardingPlan *plan)
{
  TrsStepPrediction slowest = {0}, p;
  int64_t num_dense = 0, batch = 0;
  TrsDlrmWork work;

  PetscFunctionBegin;
  if (!plan->has_costs || !TrsStepRatesAreKnown(options)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetInt(options, "-num_dense", &num_dense, NULL));
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &batch, NULL));
  if (TrsModelParallelDenseWork(options, tables, (int)num_dense, &work) != PETSC_SUCCESS) {
    PetscCall(PetscPrintf(comm, "step: not predicted: %s\n", TrsErrorMessage()));
    TrsErrorClear();
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int r = 0; r < plan->world_size; r++) {
    PetscCall(TrsStepPredict(options, &plan->device_perf[r], &work, batch, plan->world_size,
                             plan->local_world_size, &p));
    if (TrsStepPredictedMs(&p) > TrsStepPredictedMs(&slowest)) slowest = p;
  }
  if (slowest.dense_forward > 0.0)
    PetscCall(PetscPrintf(comm,
                          "step: %.4g ms predicted for the slowest rank: tables %.4g, dense layers %.4g "
                          "forward and %.4g backward, their optimizer %.4g and all-reduce %.4g\n",
                          TrsStepPredictedMs(&slowest),
                          TrsStepPredictedMs(&slowest) - slowest.dense_forward - slowest.dense_backward -
                              slowest.optimizer - slowest.allreduce,
                          slowest.dense_forward, slowest.dense_backward, slowest.optimizer,
                          slowest.allreduce));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunPlan(MPI_Comm comm, TrsOptions options)
{
  TrsTableConfigs tables = {0};
  TrsShardingPlan plan = {0};
  TrsPlanner planner;
  PetscBool reported, explained, listed;
  const char *text;

  PetscFunctionBegin;
  PetscCall(read_tables(comm, options, &tables));
  PetscCall(TrsPlannerCreate(comm, &planner));
  PetscCall(TrsPlannerSetFromOptions(planner, options));
  PetscCall(TrsPlannerSetTables(planner, &tables));
  PetscCall(TrsPlannerSetWriter(planner, TrsTextOutput));
  PetscCall(TrsPlannerSetSummary(planner));
  PetscCall(TrsPlannerSetDenseModel(planner, TrsModelParallelDescribeDense));
  PetscCall(TrsPlannerSolve(planner, &plan));
  PetscCall(TrsOptionsGetString(options, "-plan_report", &text, &reported));
  PetscCall(TrsOptionsGetString(options, "-plan_explain", &text, &explained));
  listed = (PetscBool)(tables.n <= TRS_PLAN_LISTED_TABLES && !reported && !explained);
  PetscCall(TrsOptionsGetBool(options, "-plan_list_tables", &listed, NULL));
  if (listed) PetscCall(TrsShardingPlanViewTables(&plan, comm, plan.n_tables));
  PetscCall(name_left_out(comm, &tables, &plan));
  PetscCall(TrsColumnCutsTell(comm, options, &tables, &plan));
  PetscCall(print_step(comm, options, &tables, &plan));
  PetscCall(TrsPlannerDestroy(&planner));
  PetscCall(TrsShardingPlanFree(&plan));
  PetscCall(TrsTableConfigsFree(&tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}
