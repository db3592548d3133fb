/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/machine_plan.h"

#include "core/events.h"
#include "device/host_memory.h"
#include "quant/quantised_tables.h"
#include "spec/table_choices.h"

#include <string.h>

/* Make the plan, and create the communicators for its copies of the tables. */
static PetscErrorCode solve(TrsPlanner planner, TrsMachine *machine, const TrsPlanWishes *wishes,
                            const TrsTableConfigs *tables, const TrsPlannerMachine *here,
                            TrsShardingPlan *plan)
{
  PetscFunctionBegin;
  PetscCall(TrsPlannerSetFromOptions(planner, machine->options));
  PetscCall(TrsPlannerSetTables(planner, tables));
  PetscCall(TrsPlannerSetMachine(planner, here));
  PetscCall(TrsPlannerSetWriter(planner, wishes->write));
  PetscCall(TrsPlannerSetDenseModel(planner, wishes->describe_dense, wishes->num_dense));
  PetscCall(TrsPlannerSetUp(planner));
  PetscCall(TrsPlannerSolve(planner, plan));
  machine->planned = TrsPlannerWorld(planner);
  PetscCall(TrsMachineReplicate(machine, machine->planned.replicas));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode make_plan(TrsMachine *machine, const TrsPlanWishes *wishes,
                                const TrsTableConfigs *tables, TrsShardingPlan *plan)
{
  TrsPlannerMachine here = {.is_cuda = (PetscBool)(strcmp(machine->device->name, "cuda") == 0)};
  int64_t pod = 1, free_bytes;
  TrsPlanner planner;
  PetscErrorCode ierr;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_PLAN, &before));
  PetscCall(TrsOptionsGetInt(machine->options, "-topology_pod_size", &pod, NULL));
  here.local_world_size = (int)(machine->groups.local_world_size / pod);
  here.ddr_bytes = TrsHostMemoryGet("").total_bytes / here.local_world_size;
  if (here.is_cuda) PetscCall(machine->device->memory(&free_bytes, &here.hbm_bytes));
  PetscCall(TrsPlannerCreate(machine->comm, &planner));
  ierr = solve(planner, machine, wishes, tables, &here, plan);
  PetscCall(TrsPlannerDestroy(&planner));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Refuse pooled outputs of a type that a run does not have. The planner can count bytes for any
  type; a run has fp32, fp16 and bf16.
*/
static PetscErrorCode check_outputs(TrsOptions options, const TrsTableConfigs *tables)
{
  const char *name;

  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    const TrsDType dtype = TrsTableOutputDType(table);

    if (TrsDTypeBits(dtype) >= 16) continue;
    PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), "output_dtype", &name));
    PetscCall(TrsOptionError(options, name,
                             "pooled outputs of a run are fp32, fp16 or bf16, table \"%s\" asks for %s",
                             table->name, TrsDTypeName(dtype)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse quantised tables, and plans for them. Only -task predict has quantised tables. */
static PetscErrorCode refuse_quantised(TrsOptions options, const TrsTableConfigs *tables,
                                       const TrsShardingPlan *shardings)
{
  const char *name, *source = NULL;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-plan_input", &source, NULL));
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    const TrsTablePlan *plan = TrsShardingPlanFind(shardings, table->name);

    PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), "data_type", &name));
    if (TrsDTypeBits(table->data_type) <= 8)
      PetscCall(TrsOptionError(
          options, name,
          "table \"%s\" cannot be trained or evaluated as %s: train in fp32, fp16 or bf16, then give "
          "%s to -task predict",
          table->name, TrsDTypeName(table->data_type), TrsDTypeName(table->data_type)));
    PetscCheck(!plan || !TrsKernelIsQuantised(plan->compute_kernel) || source, PETSC_COMM_SELF,
               TRS_ERR_OPTION, "-plan_sharder quant plans for -task predict, not for training or evaluation");
    PetscCheck(!plan || !TrsKernelIsQuantised(plan->compute_kernel), PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: table \"%s\" has compute kernel %s, which is for -task predict", source, table->name,
               TrsComputeKernelName(plan->compute_kernel));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse a cache whose type differs from the table's type. */
static PetscErrorCode check_precision(const TrsTableConfig *table)
{
  const TrsTableChoice *precision = &table->constraints.choice[TRS_CHOICE_CACHE_PRECISION];

  PetscFunctionBegin;
  PetscCheck(!precision->set || precision->value == (int64_t)table->data_type, PETSC_COMM_SELF,
             TRS_ERR_UNAVAILABLE,
             "table \"%s\" is %s and its cache_precision %s: a cache keeps rows as the table has them, so "
             "that it does not change the numbers (-table_%s_cache_precision)",
             table->name, TrsDTypeName(table->data_type), TrsDTypeName((TrsDType)precision->value),
             TrsTableOptionName(table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse cache options, for one table or for all tables, that this run would ignore. */
static PetscErrorCode check_caches(const TrsMachine *machine, const TrsTableConfigs *tables,
                                   const TrsShardingPlan *shardings)
{
  static const char *const keys[] = {"cache_load_factor", "cache_algorithm", "cache_reserved_memory",
                                     "cache_precision"};
  enum { TRS_N_CACHE_KEYS = sizeof(keys) / sizeof(keys[0]) };
  /* on CUDA the planner may have chosen a kernel without a cache */
  const PetscBool choice = (PetscBool)(strcmp(machine->device->name, "cuda") == 0);
  PetscBool any = PETSC_FALSE;

  PetscFunctionBegin;
  for (int t = 0; t < shardings->n_tables; t++)
    any = (PetscBool)(any || TrsKernelKeepsLines(shardings->table[t].compute_kernel));
  for (int i = 0; i < TRS_N_CACHE_KEYS * tables->n; i++) {
    const TrsTableConfig *table = &tables->table[i / TRS_N_CACHE_KEYS];
    const TrsTablePlan *plan = TrsShardingPlanFind(shardings, table->name);
    const unsigned named = table->constraints.compute_kernels;
    const char *name, *source;

    if (!plan) continue;
    if (TrsKernelKeepsLines(plan->compute_kernel)) {
      PetscCall(check_precision(table));
      continue;
    }
    PetscCall(TrsOptionsObjectName(machine->options, "table", TrsTableOptionName(table),
                                   keys[i % TRS_N_CACHE_KEYS], &name));
    PetscCall(TrsOptionsSource(machine->options, name, &source));
    if (strcmp(source, "default") == 0) continue;
    if (choice && (!named || named & TrsKernelsWhere(TrsKernelKeepsLines))) continue;
    if (any && strncmp(name, "-tables_", 8) == 0) continue;
    PetscCall(
        TrsOptionError(machine->options, name,
                       "table \"%s\" has compute kernel %s, which has no cache: name fused_uvm_caching in "
                       "-table_%s_compute_kernels, or leave this out",
                       table->name, TrsComputeKernelName(plan->compute_kernel), TrsTableOptionName(table)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Remove the constraints that quantised tables cannot have: sharding types over the ranks of a host,
  replicas, and kernels for training. Thus one options file serves training and prediction.
*/
static void keep_quantised(TrsTableConfigs *tables)
{
  const unsigned types = 1u << TRS_SHARDING_TABLE_WISE | 1u << TRS_SHARDING_COLUMN_WISE |
                         1u << TRS_SHARDING_ROW_WISE;
  const unsigned kernels = TrsKernelsWhere(TrsKernelIsQuantised);

  for (int t = 0; t < tables->n; t++) {
    tables->table[t].constraints.sharding_types &= types;
    tables->table[t].constraints.compute_kernels &= kernels;
  }
}

PetscErrorCode TrsMachinePlan(TrsMachine *machine, const TrsPlanWishes *wishes, TrsTableConfigs *tables,
                              TrsShardingPlan *plan)
{
  TrsOptions options = machine->options;
  const char *source = "the plan";

  PetscFunctionBegin;
  if (wishes->quantised) keep_quantised(tables);
  PetscCall(make_plan(machine, wishes, tables, plan));
  PetscCall(TrsOptionsGetString(options, "-plan_input", &source, NULL));
  PetscCall(TrsTableChoicesFromPlan(options, plan, source, tables));
  PetscCall(check_outputs(options, tables));
  if (wishes->quantised)
    PetscCall(TrsQuantCheckPlan(plan, tables, source));
  else
    PetscCall(refuse_quantised(options, tables, plan));
  PetscCall(check_caches(machine, tables, plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}
