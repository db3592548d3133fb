/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/planner.h"

#include "plan/infeasible.h"
#include "plan/lower_bound.h"
#include "plan/optimal.h"
#include "plan/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct TrsPlannerImpl {
  MPI_Comm comm;
  TrsOptions options; /* borrowed */
  const TrsTableConfigs *tables;
  PetscBool has_machine;
  TrsPlannerMachine machine;
  PetscBool is_set_up;
  TrsTopology topology;
  TrsPlanSettings settings;
  TrsCostModel model; /* of the three above */
  /* of the last TrsPlannerSolve(), on rank 0 */
  TrsReservation reservation;
  TrsSearchSpace space;
  TrsPlanSearch search;
  double bound_ms,
      default_path_ms; /* of the optimal proposer; 0: it was not asked, or found the first plan */
};

PetscErrorCode TrsPlannerCreate(MPI_Comm comm, TrsPlanner *planner)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(planner));
  (*planner)->comm = comm;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetFromOptions(TrsPlanner planner, TrsOptions options)
{
  PetscFunctionBegin;
  planner->options = options;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetTables(TrsPlanner planner, const TrsTableConfigs *tables)
{
  PetscFunctionBegin;
  planner->tables = tables;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetMachine(TrsPlanner planner, const TrsPlannerMachine *machine)
{
  PetscFunctionBegin;
  planner->has_machine = PETSC_TRUE;
  planner->machine = *machine;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetUp(TrsPlanner planner)
{
  enum { TRS_DEVICE_CPU = 1 }; /* -device: auto, cpu, cuda */
  const TrsPlannerMachine *machine = &planner->machine;
  TrsTopologyDefaults defaults = {.is_cuda = PETSC_TRUE};
  int size, device = 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(planner->comm, &size));
  PetscCall(TrsOptionsGetEnum(planner->options, "-device", &device, NULL));
  defaults.is_cuda = (PetscBool)(device !=
                                 TRS_DEVICE_CPU); /* a dry run plans for GPUs unless told otherwise */
  defaults.world_size = size;
  if (planner->has_machine) {
    defaults.is_cuda = machine->is_cuda;
    defaults.is_fixed = PETSC_TRUE;
    defaults.local_world_size = machine->local_world_size;
    defaults.hbm_bytes = machine->hbm_bytes;
    defaults.ddr_bytes = machine->ddr_bytes;
  }
  PetscCall(TrsTopologyFree(&planner->topology));
  PetscCall(TrsTopologyFromOptions(planner->options, &defaults, &planner->topology));
  PetscCall(TrsPlanSettingsFromOptions(planner->options, planner->tables,
                                       planner->has_machine ? machine->num_dense : 0, &planner->settings));
  planner->model = (TrsCostModel){&planner->topology, &planner->settings, planner->tables};
  planner->is_set_up = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reset(TrsPlanner planner)
{
  PetscFunctionBegin;
  PetscCall(TrsPlanSearchFree(&planner->search));
  PetscCall(TrsSearchSpaceFree(&planner->space));
  PetscCall(TrsReservationFree(&planner->reservation));
  planner->search = (TrsPlanSearch){0};
  planner->bound_ms = planner->default_path_ms = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_error(const TrsPlanner planner, TrsPlanError error, const TrsText *message)
{
  TrsText text = {0};

  PetscFunctionBegin;
  if (!planner->settings.output) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsTextPrintf(&text,
                          "{\"format\": \"trshard-plan-error\", \"version\": 1, \"error_type\": \"%s\",\n"
                          " \"proposals\": %" PRId64 ", \"feasible\": %" PRId64 ", \"partitioned\": %" PRId64
                          ",\n \"message\": ",
                          TrsPlanErrorName(error), planner->search.proposals, planner->search.feasible,
                          planner->search.partitioned));
  PetscCall(TrsTextJsonString(&text, message->data));
  PetscCall(TrsTextPrintf(&text, "}\n"));
  PetscCall(TrsTextWrite(&text, planner->settings.output, "-plan_output"));
  PetscCall(TrsTextFree(&text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool wants_optimal(const TrsPlanSettings *settings)
{
  for (int i = 0; i < settings->n_proposers; i++) {
    if (settings->proposer[i] == TRS_PROPOSER_OPTIMAL) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

/* Better plans than the proposers', with a bound. */
static PetscErrorCode optimise(TrsPlanner planner)
{
  TrsPlanSearch *search = &planner->search;
  TrsShardingPlan plan = {0};

  PetscFunctionBegin;
  if (search->best.found) {
    PetscCall(TrsPlanResult(&planner->model, search, &plan));
    planner->default_path_ms = plan.critical_path;
    PetscCall(TrsShardingPlanFree(&plan));
  }
  PetscCall(TrsPlanLowerBound(&planner->model, &planner->space, &planner->reservation,
                              search->best.found ? planner->default_path_ms : HUGE_VAL, &planner->bound_ms));
  PetscCall(TrsOptimise(&planner->model, &planner->space, &planner->reservation,
                        planner->settings.optimal_time_s, planner->bound_ms, &search->best));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reserve, enumerate, search; the best plan or the reason why there is none. */
static PetscErrorCode search_plan(TrsPlanner planner, TrsShardingPlan *plan)
{
  const TrsCostModel *model = &planner->model;
  double start_s = TrsPlanClock(), start_cpu_s = TrsPlanCpuClock();
  TrsPlanError error;
  TrsText message = {0};
  int table_alone = -1;

  PetscFunctionBegin;
  PetscCall(TrsReserve(model, &planner->reservation));
  if (!planner->reservation.too_little) PetscCall(TrsEnumerate(model, &planner->space, &table_alone));
  if (!planner->reservation.too_little && table_alone < 0) {
    if (planner->settings.search_space)
      PetscCall(TrsSearchSpaceWrite(&planner->space, planner->tables, planner->settings.search_space));
    PetscCall(TrsPlanSearchRun(model, &planner->space, &planner->reservation, &planner->search));
    if (wants_optimal(&planner->settings)) PetscCall(optimise(planner));
  }
  PetscCall(TrsPlanDiagnose(model, &planner->reservation, &planner->space, table_alone, &planner->search,
                            &error, &message));
  if (error != TRS_PLAN_OK) {
    PetscCall(write_error(planner, error, &message));
    SETERRQ(PETSC_COMM_SELF, TRS_ERR_NO_PLAN, "no feasible plan (%s): %s", TrsPlanErrorName(error),
            message.data);
  }
  PetscCall(TrsPlanResult(model, &planner->search, plan));
  planner->search.seconds = TrsPlanClock() - start_s;
  planner->search.cpu_seconds = TrsPlanCpuClock() - start_cpu_s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_plan(TrsPlanner planner, TrsShardingPlan *plan)
{
  const char *path = planner->settings.input;
  TrsText text = {0};

  PetscFunctionBegin;
  PetscCall(TrsTextRead(path, "-plan_input", &text));
  PetscCall(TrsShardingPlanFromJson(text.data, path, plan));
  PetscCall(TrsTextFree(&text));
  PetscCall(TrsShardingPlanCheck(plan, planner->tables, planner->topology.world_size, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All that a report or an explanation needs of the last solution. */
static TrsReportInput report_input(const TrsPlanner planner, const TrsShardingPlan *plan)
{
  return (TrsReportInput){.model = &planner->model,
                          .reservation = &planner->reservation,
                          .space = &planner->space,
                          .search = &planner->search,
                          .plan = plan,
                          .bound_ms = planner->bound_ms,
                          .default_path_ms = planner->default_path_ms};
}

static PetscErrorCode write_files(const TrsPlanner planner, const TrsShardingPlan *plan)
{
  const TrsPlanSettings *settings = &planner->settings;
  TrsReportInput in = report_input(planner, plan);
  TrsText text = {0};

  PetscFunctionBegin;
  if (settings->output) {
    PetscCall(TrsShardingPlanToJson(plan, &text.data));
    text.n = strlen(text.data);
    PetscCall(TrsTextWrite(&text, settings->output, "-plan_output"));
    PetscCall(TrsTextFree(&text));
  }
  if (settings->report) {
    PetscCall(TrsReportWrite(&in, &text));
    PetscCall(TrsTextWrite(&text, settings->report, "-plan_report"));
    PetscCall(TrsTextFree(&text));
  }
  if (settings->explain) {
    PetscCall(TrsExplain(&in, settings->explain, &text));
    PetscCall(TrsTextWrite(&text, "stdout", "-plan_explain"));
    PetscCall(TrsTextFree(&text));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All of rank 0's work. */
static PetscErrorCode solve_here(TrsPlanner planner, TrsShardingPlan *plan)
{
  PetscFunctionBegin;
  PetscCall(reset(planner));
  if (planner->settings.input) {
    PetscCall(read_plan(planner, plan));
    PetscCall(TrsReserve(&planner->model, &planner->reservation));
  } else {
    PetscCall(search_plan(planner, plan));
  }
  PetscCall(write_files(planner, plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSolve(TrsPlanner planner, TrsShardingPlan *plan)
{
  PetscErrorCode ierr = PETSC_SUCCESS;
  int rank;

  PetscFunctionBegin;
  if (!planner->is_set_up) PetscCall(TrsPlannerSetUp(planner));
  PetscCallMPI(MPI_Comm_rank(planner->comm, &rank));
  *plan = (TrsShardingPlan){0};
  if (rank == 0) ierr = solve_here(planner, plan);
  PetscCall(TrsShardingPlanBroadcast(planner->comm, ierr, plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerDestroy(TrsPlanner *planner)
{
  PetscFunctionBegin;
  if (!*planner) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(reset(*planner));
  PetscCall(TrsTopologyFree(&(*planner)->topology));
  PetscCall(PetscFree(*planner));
  PetscFunctionReturn(PETSC_SUCCESS);
}
