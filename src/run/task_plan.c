/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/task_plan.h"

#include "core/names.h"
#include "data/data_mapping.h"
#include "data/reader.h"
#include "optim/sparse_optimizer.h"
#include "plan/planner.h"
#include "plan/report_format.h"
#include "report/step_prediction.h"
#include "session/column_cuts.h"
#include "session/session.h"
#include "session/text_output.h"
#include "spec/text.h"
#include "train/model_parallel.h"

enum { TRS_SHOWN_TABLES = 50 };

/*
  Open the dataset. It supplies values that the options leave open. If the options name the tables,
  the dataset may be missing, and *dataset is then NULL.
*/
static PetscErrorCode open_dataset(MPI_Comm comm, TrsOptions options, TrsDataset *dataset)
{
  const char *const *paths = NULL, *const * names;
  int n_paths = 0, n = 0, rank, absent;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetStrings(options, "-data_train", &n_paths, &paths, NULL));
  PetscCall(TrsOptionsGetStrings(options, "-tables", &n, &names, NULL));
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  absent = n_paths == 0 || (rank == 0 && n > 0 && !TrsDatasetIsThere(n_paths, paths));
  PetscCallMPI(MPI_Bcast(&absent, 1, MPI_INT, 0, comm));
  if (absent) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDatasetOpen(comm, n_paths, paths, dataset));
  PetscCall(TrsReaderChooseDense(options, *dataset));
  PetscCall(TrsDataMappingCheck(comm, *dataset));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the tables, as a TrsTablesReader. */
static PetscErrorCode read_tables(TrsOptions options, void *context, TrsTableConfigs *tables)
{
  TrsDataset dataset = context;

  PetscFunctionBegin;
  if (dataset)
    PetscCall(TrsSessionTables(options, dataset, PETSC_TRUE, tables));
  else
    PetscCall(TrsTableConfigsFromOptions(options, NULL, tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode count_dense(TrsOptions options, TrsDataset dataset, int64_t *num_dense)
{
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  *num_dense = 0;
  if (dataset) {
    PetscCall(TrsDatasetGetInfo(dataset, &info));
    *num_dense = info->num_dense;
  }
  PetscCall(TrsOptionsGetInt(options, "-num_dense", num_dense, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print the names of the tables that the planner leaves out. These are tables of another device
  group, which TorchRec's planner leaves out too.
*/
static PetscErrorCode name_left_out(MPI_Comm comm, const TrsTableConfigs *tables, const TrsShardingPlan *plan)
{
  int n = 0, at = 0;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];

    if (!table->constraints.device_group || TrsShardingPlanFindNext(plan, table->name, &at)) continue;
    if (n++ < TRS_SHOWN_TABLES)
      PetscCall(PetscPrintf(comm, "not in this plan: table %s, whose device group is %s\n", table->name,
                            table->constraints.device_group));
  }
  if (n > TRS_SHOWN_TABLES)
    PetscCall(PetscPrintf(comm, "not in this plan: %d table%s more\n", n - TRS_SHOWN_TABLES,
                          TrsPlural(n - TRS_SHOWN_TABLES, "s")));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find out if the plan is for a training. It is not if tables are quantised, because these are not
  trained.
*/
static PetscErrorCode is_training(TrsOptions options, const TrsTableConfigs *tables, PetscBool *trains)
{
  PetscBool inference;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(options, "-plan_is_inference", &inference, NULL));
  *trains = (PetscBool)!inference;
  for (int t = 0; t < tables->n; t++)
    *trains = (PetscBool)(*trains && TrsDTypeBits(tables->table[t].data_type) >= 16);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If the options give the rates of dense layers, print the predicted time of a training step on the
  slowest rank. A plan needs no model. If the options define no model that fits the tables, the line
  states this. Logically collective.
*/
static PetscErrorCode print_step(MPI_Comm comm, TrsOptions options, const TrsTableConfigs *tables,
                                 int64_t num_dense, const TrsShardingPlan *plan, const TrsPlannedWorld *world)
{
  TrsStepPrediction slowest = {0}, p;
  int64_t batch;
  TrsDlrmWork work;
  PetscBool trains = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(is_training(options, tables, &trains));
  if (!trains || !TrsStepRatesAreKnown(options)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsReaderStepBatch(options, &batch));
  PetscCall(TrsOptionsGetInt(options, "-plan_batch_size", &batch, NULL));
  if (TrsModelParallelDenseWork(options, tables, (int)num_dense, &work) != PETSC_SUCCESS) {
    PetscCall(PetscPrintf(comm, "step: not predicted: %s\n", TrsErrorMessage()));
    TrsErrorClear();
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int r = 0; r < plan->world_size; r++) {
    PetscCall(TrsStepPredict(options, &plan->device_perf[r], &work, batch, world, &p));
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

/* Print the bytes of the directories of tables that keep ids, and their caps. */
static PetscErrorCode tell_keys(MPI_Comm comm, const TrsTableConfigs *tables, const TrsShardingPlan *plan)
{
  TrsText text = {NULL, 0, 0};
  int at = 0;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];

    if (TrsShardingPlanFindNext(plan, table->name, &at)) PetscCall(TrsKeysWrite(1, &table, &text));
  }
  if (text.data) PetscCall(PetscPrintf(comm, "%s", text.data));
  PetscCall(TrsTextFree(&text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Return the bytes of a shard's rows, states and directory in a run. */
static double shard_bytes(const TrsTableConfig *table, const TrsSparseOptimizerArgs *optimizer,
                          const TrsShard *shard)
{
  double of_rows, of_elements;

  TrsSparseOptimizerStateBytes(optimizer->kind, shard->rows, shard->cols, &of_rows, &of_elements);
  return (double)(shard->rows * shard->cols * TrsDTypeBytes(table->data_type)) + of_rows + of_elements +
         (shard->cols > 0 ? (double)shard->rows * (double)TrsTableKeysRowBytes(table) : 0.0);
}

/*
  Print by how much the tables and states of a rank exceed the bytes that the plan counts for it.
  The planner counts states as TorchRec's planner does: in the table's type, and only one state for
  lamb.
*/
static PetscErrorCode tell_states(MPI_Comm comm, TrsOptions options, const TrsTableConfigs *tables,
                                  const TrsShardingPlan *plan)
{
  TrsSparseOptimizers optimizers = {.n = 0};
  PetscBool trains = PETSC_FALSE;
  double *bytes;
  char of_run[32], of_plan[32];
  int worst = 0, at = 0;

  PetscFunctionBegin;
  PetscCall(is_training(options, tables, &trains));
  if (!trains) PetscFunctionReturn(PETSC_SUCCESS);
  if (TrsSparseOptimizersFromOptions(options, tables, &optimizers) != PETSC_SUCCESS) {
    TrsErrorClear(); /* ignore the error, because a plan does not need a valid optimizer */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscCalloc1((size_t)plan->n_devices, &bytes));
  for (int d = 0; d < plan->n_devices; d++)
    bytes[d] = -(double)(plan->device_storage[d].hbm + plan->device_storage[d].ddr);
  for (int t = 0; t < tables->n; t++) {
    const TrsTablePlan *of_table = TrsShardingPlanFindNext(plan, tables->table[t].name, &at);

    for (int i = 0; of_table && !TrsKernelIsQuantised(of_table->compute_kernel) && i < of_table->n_shards;
         i++)
      bytes[of_table->shard[i].rank] += shard_bytes(&tables->table[t], TrsSparseOptimizersOf(&optimizers, t),
                                                    &of_table->shard[i]);
  }
  for (int d = 1; d < plan->n_devices; d++)
    if (bytes[d] > bytes[worst]) worst = d;
  if (bytes[worst] > 0) {
    const double counted = (double)(plan->device_storage[worst].hbm + plan->device_storage[worst].ddr);

    PetscCall(PetscPrintf(comm,
                          "memory: in a run, tables and optimizer states of rank %d take %s; the plan counts "
                          "%s for it, as TorchRec's does: leave more room (-topology_hbm_cap, "
                          "-topology_ddr_cap)\n",
                          worst, TrsBytesText(counted + bytes[worst], of_run, sizeof(of_run)),
                          TrsBytesText(counted, of_plan, sizeof(of_plan))));
  }
  PetscCall(PetscFree(bytes));
  PetscCall(TrsSparseOptimizersFree(&optimizers));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunPlan(MPI_Comm comm, TrsOptions options)
{
  TrsDataset dataset = NULL;
  TrsTableConfigs tables = {0};
  TrsShardingPlan plan = {0};
  TrsPlannedWorld world;
  TrsPlanner planner;
  PetscBool reported, explained, listed;
  int64_t num_dense;
  const char *text;

  PetscFunctionBegin;
  PetscCall(open_dataset(comm, options, &dataset));
  PetscCall(read_tables(options, dataset, &tables));
  PetscCall(count_dense(options, dataset, &num_dense));
  PetscCall(TrsPlannerCreate(comm, &planner));
  PetscCall(TrsPlannerSetFromOptions(planner, options));
  PetscCall(TrsPlannerSetTables(planner, &tables));
  PetscCall(TrsPlannerSetWriter(planner, TrsTextOutput));
  PetscCall(TrsPlannerSetSummary(planner, read_tables, dataset));
  PetscCall(TrsPlannerSetDenseModel(planner, TrsModelParallelDescribeDense, (int)num_dense));
  PetscCall(TrsPlannerSolve(planner, &plan));
  PetscCall(TrsOptionsGetString(options, "-plan_report", &text, &reported));
  PetscCall(TrsOptionsGetString(options, "-plan_explain", &text, &explained));
  listed = (PetscBool)(tables.n <= TRS_PLAN_LISTED_TABLES && !reported && !explained);
  PetscCall(TrsOptionsGetBool(options, "-plan_list_tables", &listed, NULL));
  if (listed) PetscCall(TrsShardingPlanViewTables(&plan, comm, plan.n_tables));
  if (!reported) PetscCall(tell_keys(comm, &tables, &plan));
  PetscCall(name_left_out(comm, &tables, &plan));
  PetscCall(TrsColumnCutsTell(comm, options, &tables, &plan));
  PetscCall(tell_states(comm, options, &tables, &plan));
  world = TrsPlannerWorld(planner);
  PetscCall(print_step(comm, options, &tables, num_dense, &plan, &world));
  PetscCall(TrsPlannerDestroy(&planner));
  PetscCall(TrsDatasetClose(&dataset));
  PetscCall(TrsShardingPlanFree(&plan));
  PetscCall(TrsTableConfigsFree(&tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}
