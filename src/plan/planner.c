/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/planner.h"

#include "core/file_text.h"
#include "plan/advice/diagnosis.h"
#include "plan/advice/summary.h"
#include "plan/problem.h"

#include <inttypes.h>
#include <string.h>

/* Size limit of a -plan_input: 14 million shards at 300 bytes each. */
static const int64_t max_plan_bytes = (int64_t)4 << 30;

struct TrsPlannerImpl {
  MPI_Comm comm;
  TrsProblem problem;
  TrsPlanWriter writer; /* writes the planner's files; NULL: no files are written */
  PetscBool wants_summary, is_set_up;
  TrsSolution solution;   /* the result of the last TrsPlannerSolve(), on rank 0 */
  TrsOptimum alternative; /* the result of TrsProblemTryOptimal(), on rank 0 */
  double sync_ms;         /* the result of TrsReplicaSync() for the plan, on all ranks */
};

PetscErrorCode TrsPlannerCreate(MPI_Comm comm, TrsPlanner *planner)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(planner));
  (*planner)->comm = comm;
  (*planner)->solution.table_alone = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetFromOptions(TrsPlanner planner, TrsOptions options)
{
  PetscFunctionBegin;
  planner->problem.options = options;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetTables(TrsPlanner planner, const TrsTableConfigs *tables)
{
  PetscFunctionBegin;
  planner->problem.tables = tables;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetMachine(TrsPlanner planner, const TrsPlannerMachine *machine)
{
  PetscFunctionBegin;
  planner->problem.has_machine = PETSC_TRUE;
  planner->problem.machine = *machine;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetDenseModel(TrsPlanner planner, TrsDenseModel model, int num_dense)
{
  PetscFunctionBegin;
  planner->problem.num_dense = num_dense;
  planner->problem.describe_dense = model;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetWriter(TrsPlanner planner, TrsPlanWriter writer)
{
  PetscFunctionBegin;
  planner->writer = writer;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetSummary(TrsPlanner planner, TrsTablesReader read_tables, void *context)
{
  PetscFunctionBegin;
  planner->problem.read_tables = read_tables;
  planner->problem.context = context;
  planner->wants_summary = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetUp(TrsPlanner planner)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(planner->comm, &planner->problem.n_ranks));
  PetscCall(TrsProblemSetUp(&planner->problem));
  planner->is_set_up = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Pass a text to the writer, then free it. If `path` is NULL, only free it. */
static PetscErrorCode write_text(const TrsPlanner planner, const char *option, const char *path,
                                 TrsText *text)
{
  PetscFunctionBegin;
  if (path && planner->writer) PetscCall(planner->writer(planner->problem.options, option, path, text));
  PetscCall(TrsTextFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Before a long search, check that all output files can be created. */
static PetscErrorCode try_files(const TrsPlanner planner)
{
  const TrsPlanSettings *settings = &planner->problem.settings;

  PetscFunctionBegin;
  if (!planner->writer) {
    const char *option = settings->output         ? "-plan_output"
                         : settings->search_space ? "-plan_search_space"
                         : settings->report       ? "-plan_report"
                                                  : NULL;

    if (option)
      PetscCall(
          TrsOptionError(planner->problem.options, option,
                         "is of the program: here nobody writes files (TrshardCollectionPlan() gives the "
                         "plan)"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (settings->output)
    PetscCall(planner->writer(planner->problem.options, "-plan_output", settings->output, NULL));
  if (settings->search_space)
    PetscCall(planner->writer(planner->problem.options, "-plan_search_space", settings->search_space, NULL));
  if (settings->report)
    PetscCall(planner->writer(planner->problem.options, "-plan_report", settings->report, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_error(const TrsPlanner planner, TrsPlanError error, const TrsText *message)
{
  TrsText text = {0};

  PetscFunctionBegin;
  if (!planner->problem.settings.output) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsTextPrintf(&text,
                          "{\"format\": \"trshard-plan-error\", \"version\": 1, \"error_type\": \"%s\",\n"
                          " \"proposals\": %" PRId64 ", \"feasible\": %" PRId64 ", \"partitioned\": %" PRId64
                          ",\n \"message\": ",
                          TrsPlanErrorName(error), planner->solution.search.proposals,
                          planner->solution.search.feasible, planner->solution.search.partitioned));
  PetscCall(TrsTextJsonString(&text, message->data));
  PetscCall(TrsTextPrintf(&text, "}\n"));
  PetscCall(write_text(planner, "-plan_output", planner->problem.settings.output, &text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_search_space(const TrsPlanner planner)
{
  TrsText text = {0};

  PetscFunctionBegin;
  if (!planner->problem.settings.search_space) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsSearchSpaceToJson(&planner->solution.space, planner->problem.tables, &text));
  PetscCall(write_text(planner, "-plan_search_space", planner->problem.settings.search_space, &text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Handle a problem without a plan: write the summary and the file, and raise the error. */
static PetscErrorCode refuse(TrsPlanner planner, const TrsFailure *failure)
{
  const TrsPlanError error = TrsPlanErrorOf(failure);
  TrsText message = {0}, changes = {0}, text = {0};

  PetscFunctionBegin;
  PetscCall(TrsPlanDiagnose(&planner->problem, &planner->solution, failure, &message, &changes));
  PetscCall(write_error(planner, error, &message));
  if (planner->wants_summary &&
      (error == TRS_PLAN_INSUFFICIENT_STORAGE || error == TRS_PLAN_STRICT_CONSTRAINTS)) {
    PetscCall(TrsSummaryWriteNoPlan(&planner->problem, &planner->solution, &changes, &text));
    PetscCall(write_text(planner, "-task plan", "stdout", &text));
  }
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_NO_PLAN, "no feasible plan (%s): %s", TrsPlanErrorName(error),
          message.data);
}

/* Solve the problem. Return the best plan, or raise an error that explains why there is none. */
static PetscErrorCode search_plan(TrsPlanner planner, TrsShardingPlan *plan)
{
  TrsSolution *solution = &planner->solution;
  TrsFailure failure;

  PetscFunctionBegin;
  PetscCall(TrsProblemSolve(&planner->problem, solution));
  if (solution->space.n_tables > 0) PetscCall(write_search_space(planner));
  TrsFailureFind(&planner->problem, solution, &failure);
  if (failure.kind != TRS_FAILURE_NONE) PetscCall(refuse(planner, &failure));
  PetscCall(TrsPlanResult(&planner->problem.model, &solution->search, plan));
  if (planner->wants_summary)
    PetscCall(TrsProblemTryOptimal(&planner->problem, solution, &planner->alternative));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_plan(TrsPlanner planner, TrsShardingPlan *plan)
{
  const TrsTopology *topology = &planner->problem.topology;
  const char *path = planner->problem.settings.input;
  TrsPlanWorld world;
  char *text = NULL;

  PetscFunctionBegin;
  PetscCall(TrsFileReadOption("-plan_input", path, "a plan (JSON)", max_plan_bytes, &text));
  PetscCall(TrsShardingPlanFromJson(text, path, plan));
  PetscCall(PetscFree(text));
  if (planner->problem.chooses_replicas && plan->world_size > 0 &&
      topology->world_size % plan->world_size == 0)
    PetscCall(TrsProblemSetReplicas(&planner->problem, topology->world_size / plan->world_size));
  world = (TrsPlanWorld){topology->world_size, topology->local_world_size, topology->pod_size};
  PetscCall(TrsShardingPlanComplete(planner->problem.tables, &world, path, plan));
  PetscCall(TrsShardingPlanCheck(plan, planner->problem.tables, planner->problem.topology.world_size, path));
  if (!plan->has_costs) PetscCall(TrsPlanCost(&planner->problem.model, plan));
  PetscCall(TrsPlanSum(planner->problem.tables, plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make the input of a report or an explanation from the last solution. */
static TrsReportInput report_input(const TrsPlanner planner, const TrsShardingPlan *plan)
{
  const TrsSolution *solution = &planner->solution;

  return (TrsReportInput){.model = &planner->problem.model,
                          .reservation = &solution->reservation,
                          .space = &solution->space,
                          .search = &solution->search,
                          .plan = plan,
                          .optimum = &solution->optimum,
                          .alternative = &planner->alternative,
                          .default_path_ms = solution->default_path_ms};
}

static PetscErrorCode write_files(const TrsPlanner planner, const TrsShardingPlan *plan)
{
  const TrsPlanSettings *settings = &planner->problem.settings;
  TrsReportInput in = report_input(planner, plan);
  TrsText text = {0}, explanation = {0};

  PetscFunctionBegin;
  if (settings->explain) PetscCall(TrsExplain(&in, settings->explain, &explanation));
  if (planner->wants_summary) {
    PetscCall(TrsReplicaChoiceWrite(&planner->problem.model, &planner->solution.choice, &text));
    PetscCall(TrsSummaryWrite(&in, &text));
    PetscCall(write_text(planner, "-task plan", "stdout", &text));
  }
  if (settings->output) {
    PetscCall(TrsShardingPlanToJson(plan, &text.data));
    text.n = strlen(text.data);
    PetscCall(write_text(planner, "-plan_output", settings->output, &text));
  }
  if (settings->report) {
    PetscCall(TrsReportWrite(&in, &text));
    PetscCall(write_text(planner, "-plan_report", settings->report, &text));
  }
  if (settings->explain) PetscCall(write_text(planner, "-plan_explain", "stdout", &explanation));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute the cost of the copies. If the planner does not choose their number, the plan's number is
  the only candidate.
*/
static PetscErrorCode count_copies(TrsPlanner planner, const TrsShardingPlan *plan)
{
  const int replicas = planner->problem.topology.replicas;

  PetscFunctionBegin;
  planner->sync_ms = 0;
  if (replicas == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsReplicaSync(&planner->problem.model, plan, &planner->sync_ms));
  if (planner->solution.choice.n <= 1)
    planner->solution.choice = (TrsReplicaChoice){
        1, {{replicas, .fits = PETSC_TRUE, .path_ms = plan->critical_path, .sync_ms = planner->sync_ms}}};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Do all of the work that only rank 0 does. */
static PetscErrorCode solve_here(TrsPlanner planner, TrsShardingPlan *plan)
{
  PetscFunctionBegin;
  PetscCall(TrsSolutionFree(&planner->solution));
  planner->alternative = (TrsOptimum){0};
  PetscCall(try_files(planner));
  if (planner->problem.settings.input) {
    if (planner->problem.chooses_replicas) PetscCall(TrsProblemSetReplicas(&planner->problem, 1));
    PetscCall(read_plan(planner, plan));
    PetscCall(TrsReserve(&planner->problem.model, &planner->solution.reservation));
  } else {
    PetscCall(search_plan(planner, plan));
  }
  PetscCall(TrsPlanDescribe(&planner->problem.model, &planner->solution.reservation, plan));
  PetscCall(count_copies(planner, plan));
  PetscCall(write_files(planner, plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSolve(TrsPlanner planner, TrsShardingPlan *plan)
{
  PetscErrorCode ierr = PETSC_SUCCESS;
  int rank, replicas;

  PetscFunctionBegin;
  if (!planner->is_set_up) PetscCall(TrsPlannerSetUp(planner));
  PetscCallMPI(MPI_Comm_rank(planner->comm, &rank));
  *plan = (TrsShardingPlan){0};
  if (rank == 0) ierr = solve_here(planner, plan);
  PetscCall(TrsShardingPlanBroadcast(planner->comm, ierr, plan));
  replicas = planner->problem.topology.replicas;
  PetscCallMPI(MPI_Bcast(&replicas, 1, MPI_INT, 0, planner->comm));
  PetscCallMPI(MPI_Bcast(&planner->sync_ms, 1, MPI_DOUBLE, 0, planner->comm));
  if (replicas != planner->problem.topology.replicas)
    PetscCall(TrsProblemSetReplicas(&planner->problem, replicas));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsPlannedWorld TrsPlannerWorld(TrsPlanner planner)
{
  const TrsTopology *topology = &planner->problem.topology;
  const int ranks = topology->world_size * topology->replicas;
  const PetscBool one_host = (PetscBool)(ranks <= topology->host_ranks * topology->pod_size);

  return (TrsPlannedWorld){.replicas = topology->replicas,
                           .ranks = ranks,
                           .between_bw = one_host ? topology->intra_host_bw : topology->inter_host_bw,
                           .sync_ms = planner->sync_ms};
}

PetscErrorCode TrsPlannerDestroy(TrsPlanner *planner)
{
  PetscFunctionBegin;
  if (!*planner) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsSolutionFree(&(*planner)->solution));
  PetscCall(TrsProblemFree(&(*planner)->problem));
  PetscCall(PetscFree(*planner));
  PetscFunctionReturn(PETSC_SUCCESS);
}
