/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/planner.h"

#include "core/clock.h"
#include "core/file_text.h"
#include "plan/advice/infeasible.h"
#include "plan/advice/summary.h"
#include "plan/optimal/lower_bound.h"
#include "plan/optimal/optimal.h"
#include "plan/replica_choice.h"
#include "plan/report.h"
#include "plan/shared_cache.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Size limit of a -plan_input. With 300 bytes for each shard this is 14 million shards. */
static const int64_t max_plan_bytes = (int64_t)4 << 30;

struct TrsPlannerImpl {
  MPI_Comm comm;
  TrsOptions options; /* borrowed */
  const TrsTableConfigs *tables;
  PetscBool has_machine;
  TrsPlannerMachine machine;
  TrsPlanWriter writer; /* NULL to write no files */
  PetscBool wants_summary;
  TrsDenseModel describe_dense; /* NULL: no dense layers */
  int num_dense;                /* of the dataset */
  PetscBool is_set_up, chooses_replicas;
  TrsTopologyDefaults defaults;
  TrsTopology topology;
  TrsPlanSettings settings;
  double *shared_miss; /* [tables->n] or NULL */
  TrsCostModel model;  /* points to tables, topology, settings and shared_miss */
  /* Data of the last TrsPlannerSolve(), on rank 0. */
  TrsReservation reservation;
  TrsSearchSpace space;
  TrsPlanSearch search;
  TrsOptimum optimum;     /* of the optimal proposer; without a bound if it was not asked */
  TrsOptimum alternative; /* what it would make of the plan, likewise */
  double default_path_ms;
  TrsReplicaChoice choice;
  double sync_ms; /* TrsReplicaSync() of the plan; on all ranks */
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

/*
  Check the tables' device groups. A run has one kind of device for all its tables. A dry run plans
  only some of the tables if others have another device group.
*/
static PetscErrorCode check_device_groups(const TrsPlanner planner)
{
  const char *device = planner->machine.is_cuda ? "cuda" : "cpu",
             *planned = planner->topology.is_cuda ? "cuda" : "cpu";

  PetscFunctionBegin;
  for (int t = 0; t < planner->tables->n; t++) {
    const TrsTableConfig *table = &planner->tables->table[t];
    const char *group = table->constraints.device_group;

    if (!group || (strcmp(group, device) == 0 && strcmp(group, planned) == 0)) continue;
    SETERRQ(PETSC_COMM_SELF, TRS_ERR_OPTION,
            "table \"%s\" has device group %s (-table_%s_device_group or -tables_device_group), but this run "
            "is on "
            "%s%s: all tables of a run are on one kind of device; only -task plan leaves some out",
            table->name, group, TrsTableOptionName(table), device,
            strcmp(device, planned) == 0 ? "" : " with another -topology_compute_device");
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetDenseModel(TrsPlanner planner, TrsDenseModel model, int num_dense)
{
  PetscFunctionBegin;
  planner->num_dense = num_dense;
  planner->describe_dense = model;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetWriter(TrsPlanner planner, TrsPlanWriter writer)
{
  PetscFunctionBegin;
  planner->writer = writer;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetSummary(TrsPlanner planner)
{
  PetscFunctionBegin;
  planner->wants_summary = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode describe_dense(TrsPlanner planner)
{
  int64_t num_dense = planner->num_dense;
  TrsPlanSettings *settings = &planner->settings;
  TrsDenseFacts facts;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(planner->options, "-num_dense", &num_dense, NULL));
  if (!planner->describe_dense || (settings->has_dense_parameters && !settings->measured))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(planner->describe_dense(planner->options, planner->tables, (int)num_dense, &facts));
  if (!settings->has_dense_parameters) settings->dense_parameter_bytes = facts.parameter_bytes;
  settings->takes_vectors = facts.takes_vectors;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The measured cost model needs measurements. */
static PetscErrorCode check_rates(TrsPlanner planner)
{
  const TrsRowRates *rates = &planner->topology.rows;

  PetscFunctionBegin;
  if (planner->settings.measured &&
      (rates->read_bw <= 0.0 || rates->update_bw <= 0.0 || rates->stream_bw <= 0.0))
    PetscCall(TrsOptionError(planner->options, "-plan_cost_model",
                             "measured needs -topology_row_read_bw, -topology_row_update_bw and "
                             "-topology_stream_bw: take them from the file that -task bench -bench_topology "
                             "writes"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Plan for so many copies of the tables; 0: as the options say. */
static PetscErrorCode set_replicas(TrsPlanner planner, int replicas)
{
  PetscFunctionBegin;
  planner->defaults.replicas = replicas;
  PetscCall(TrsTopologyFree(&planner->topology));
  PetscCall(TrsTopologyFromOptions(planner->options, &planner->defaults, &planner->topology));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Does the planner choose the number of copies? Refuse options that fit one number alone. */
static PetscErrorCode read_choice(TrsPlanner planner)
{
  static const char *const names[] = {"-topology_hbm_cap_per_rank", "-topology_ddr_cap_per_rank",
                                      "-topology_pod_size"};
  int replicas;

  PetscFunctionBegin;
  PetscCall(TrsPlanReplicas(planner->options,
                            (int64_t)planner->topology.world_size * planner->topology.replicas, &replicas));
  planner->chooses_replicas = (PetscBool)(replicas == 0);
  for (size_t i = 0; replicas == 0 && i < sizeof(names) / sizeof(names[0]); i++)
    if (TrsOptionsIsGiven(planner->options, names[i]))
      PetscCall(TrsOptionError(planner->options, "-plan_replicas",
                               "0, the planner's choice, does not go with %s: leave one out", names[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlannerSetUp(TrsPlanner planner)
{
  const TrsPlannerMachine *machine = &planner->machine;
  TrsTopologyDefaults defaults = {.is_cuda = PETSC_TRUE};
  int size, device = 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(planner->comm, &size));
  PetscCall(TrsOptionsGetEnum(planner->options, "-device", &device, NULL));
  /* A dry run plans for GPUs unless told otherwise. */
  defaults.is_cuda = (PetscBool)(device != TRS_DEVICE_CPU);
  defaults.world_size = size;
  if (planner->has_machine) {
    defaults.is_cuda = machine->is_cuda;
    defaults.is_fixed = PETSC_TRUE;
    defaults.local_world_size = machine->local_world_size;
    defaults.hbm_bytes = machine->hbm_bytes;
    defaults.ddr_bytes = machine->ddr_bytes;
  }
  planner->defaults = defaults;
  PetscCall(set_replicas(planner, 0));
  PetscCall(read_choice(planner));
  if (planner->has_machine) PetscCall(check_device_groups(planner));
  PetscCall(TrsPlanSettingsFromOptions(planner->options, &planner->settings));
  PetscCall(check_rates(planner));
  PetscCall(describe_dense(planner));
  PetscCall(PetscFree(planner->shared_miss));
  if (planner->settings.cache_hit_rates) {
    PetscCall(PetscMalloc1(PetscMax(planner->tables->n, 1), &planner->shared_miss));
    PetscCall(
        TrsSharedMissRates(planner->tables, (double)planner->settings.cache_steps, planner->shared_miss));
  }
  planner->model = (TrsCostModel){&planner->topology, &planner->settings, planner->tables,
                                  planner->shared_miss};
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
  planner->optimum = planner->alternative = (TrsOptimum){0};
  planner->default_path_ms = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Pass a text to the writer, and free it. path NULL skips the text. */
static PetscErrorCode write_text(const TrsPlanner planner, const char *option, const char *path,
                                 TrsText *text)
{
  PetscFunctionBegin;
  if (path && planner->writer) PetscCall(planner->writer(planner->options, option, path, text));
  PetscCall(TrsTextFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check before a long search that all files can be made. */
static PetscErrorCode try_files(const TrsPlanner planner)
{
  const TrsPlanSettings *settings = &planner->settings;

  PetscFunctionBegin;
  if (!planner->writer) {
    const char *option = settings->output         ? "-plan_output"
                         : settings->search_space ? "-plan_search_space"
                         : settings->report       ? "-plan_report"
                                                  : NULL;

    if (option)
      PetscCall(
          TrsOptionError(planner->options, option,
                         "is of the program: here nobody writes files (TrshardCollectionPlan() gives the "
                         "plan)"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (settings->output) PetscCall(planner->writer(planner->options, "-plan_output", settings->output, NULL));
  if (settings->search_space)
    PetscCall(planner->writer(planner->options, "-plan_search_space", settings->search_space, NULL));
  if (settings->report) PetscCall(planner->writer(planner->options, "-plan_report", settings->report, NULL));
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
  PetscCall(write_text(planner, "-plan_output", planner->settings.output, &text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_search_space(const TrsPlanner planner)
{
  TrsText text = {0};

  PetscFunctionBegin;
  if (!planner->settings.search_space) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsSearchSpaceToJson(&planner->space, planner->tables, &text));
  PetscCall(write_text(planner, "-plan_search_space", planner->settings.search_space, &text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Look for better plans than the proposers', with a bound. */
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
  PetscCall(TrsOptimise(&planner->model, &planner->space, &planner->reservation,
                        planner->settings.optimal_time_s, &search->best, &planner->optimum));
  search->attempts = planner->optimum.attempts;
  search->no_plan_proven = (PetscBool)(planner->optimum.bound_ms >= HUGE_VAL);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the optimal proposer would save, where nobody asked it: of a copy of the plan. */
static PetscErrorCode look_at_alternative(TrsPlanner planner)
{
  const TrsPlanSettings *settings = &planner->settings;
  TrsBestPlan plan;

  PetscFunctionBegin;
  if (!planner->wants_summary || settings->advice_s <= 0 || settings->wants_optimal || settings->wants_auto)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsBestPlanCopy(&planner->search.best, &plan));
  PetscCall(TrsOptimise(&planner->model, &planner->space, &planner->reservation, settings->advice_s, &plan,
                        &planner->alternative));
  PetscCall(TrsBestPlanFree(&plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* No plan: the summary, the file and the error. */
static PetscErrorCode refuse(TrsPlanner planner, TrsPlanError error, const TrsText *message)
{
  TrsText text = {0};

  PetscFunctionBegin;
  PetscCall(write_error(planner, error, message));
  if (planner->wants_summary &&
      (error == TRS_PLAN_INSUFFICIENT_STORAGE || error == TRS_PLAN_STRICT_CONSTRAINTS)) {
    PetscCall(TrsSummaryWriteNoPlan(&planner->model, &planner->reservation, &planner->space, &planner->search,
                                    &text));
    PetscCall(write_text(planner, "-task plan", "stdout", &text));
  }
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_NO_PLAN, "no feasible plan (%s): %s", TrsPlanErrorName(error),
          message->data);
}

/* Look for a plan for so many copies, without a word to the user. */
static PetscErrorCode try_replicas(TrsPlanner planner, TrsReplicaCandidate *candidate)
{
  int table_alone = -1;
  TrsShardingPlan plan;

  PetscFunctionBegin;
  PetscCall(reset(planner));
  PetscCall(set_replicas(planner, candidate->replicas));
  PetscCall(TrsReserve(&planner->model, &planner->reservation));
  if (planner->reservation.too_little) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsEnumerate(&planner->model, &planner->space, &table_alone));
  if (table_alone >= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPlanSearchRun(&planner->model, &planner->space, &planner->reservation, &planner->search));
  candidate->fits = planner->search.best.found;
  if (!candidate->fits) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPlanResult(&planner->model, &planner->search, &plan));
  candidate->path_ms = plan.critical_path;
  PetscCall(TrsReplicaSync(&planner->model, &plan, &candidate->sync_ms));
  PetscCall(TrsShardingPlanFree(&plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the number of copies by the proposers' plans; the optimal proposer then works on the chosen
  one. Where a copy has too few ranks for the tables, more copies have, too.
*/
static PetscErrorCode choose_replicas(TrsPlanner planner)
{
  TrsReplicaChoice *choice = &planner->choice;
  const TrsReplicaCandidate *best;
  int n = 0;

  PetscFunctionBegin;
  TrsReplicaCandidates(planner->topology.world_size, planner->topology.host_ranks, choice);
  while (n < choice->n) {
    PetscCall(try_replicas(planner, &choice->candidate[n]));
    if (!choice->candidate[n++].fits) break;
  }
  choice->n = n;
  best = TrsReplicaBest(choice);
  PetscCall(reset(planner));
  PetscCall(set_replicas(planner, best ? best->replicas : 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Reserve, enumerate and search. The result is the best plan, or the reason why there is none. */
static PetscErrorCode search_plan(TrsPlanner planner, TrsShardingPlan *plan)
{
  const TrsCostModel *model = &planner->model;
  double start_s = TrsClock(), start_cpu_s = TrsPlanCpuClock();
  TrsPlanError error;
  TrsText message = {0};
  int table_alone = -1;

  PetscFunctionBegin;
  PetscCall(TrsReserve(model, &planner->reservation));
  if (!planner->reservation.too_little) PetscCall(TrsEnumerate(model, &planner->space, &table_alone));
  if (!planner->reservation.too_little && table_alone < 0) {
    PetscCall(write_search_space(planner));
    PetscCall(TrsPlanSearchRun(model, &planner->space, &planner->reservation, &planner->search));
    if (planner->settings.wants_optimal || planner->settings.wants_auto) PetscCall(optimise(planner));
  }
  PetscCall(TrsPlanDiagnose(model, &planner->reservation, &planner->space, table_alone, &planner->search,
                            &error, &message));
  if (error != TRS_PLAN_OK) PetscCall(refuse(planner, error, &message));
  PetscCall(TrsPlanResult(model, &planner->search, plan));
  planner->search.seconds = TrsClock() - start_s;
  planner->search.cpu_seconds = TrsPlanCpuClock() - start_cpu_s;
  PetscCall(look_at_alternative(planner));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the text of -plan_input. Free it with PetscFree(). */
static PetscErrorCode read_text(const char *path, char **text)
{
  TrsFileText file;

  PetscFunctionBegin;
  PetscCall(TrsFileReadText(path, max_plan_bytes, &file));
  PetscCheck(file.outcome != TRS_FILE_UNREADABLE, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "-plan_input %s can't be read: %s", path, strerror(file.error));
  PetscCheck(file.outcome != TRS_FILE_FOLDER, PETSC_COMM_SELF, TRS_ERR_NO_INPUT,
             "-plan_input %s can't be read: it is a directory", path);
  PetscCheck(file.outcome != TRS_FILE_IRREGULAR, PETSC_COMM_SELF, TRS_ERR_DATA,
             "-plan_input %s is not a regular file: a plan (JSON) is expected", path);
  PetscCheck(file.outcome != TRS_FILE_TOO_LARGE, PETSC_COMM_SELF, TRS_ERR_DATA,
             "-plan_input %s has %" PRId64 " bytes; at most %" PRId64 " are read", path, file.n_bytes,
             max_plan_bytes);
  *text = file.text;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_plan(TrsPlanner planner, TrsShardingPlan *plan)
{
  const TrsTopology *topology = &planner->topology;
  const char *path = planner->settings.input;
  TrsPlanWorld world;
  char *text = NULL;

  PetscFunctionBegin;
  PetscCall(read_text(path, &text));
  PetscCall(TrsShardingPlanFromJson(text, path, plan));
  PetscCall(PetscFree(text));
  if (planner->chooses_replicas && plan->world_size > 0 && topology->world_size % plan->world_size == 0)
    PetscCall(set_replicas(planner, topology->world_size / plan->world_size));
  world = (TrsPlanWorld){topology->world_size, topology->local_world_size, topology->pod_size};
  PetscCall(TrsShardingPlanComplete(planner->tables, &world, path, plan));
  PetscCall(TrsShardingPlanCheck(plan, planner->tables, planner->topology.world_size, path));
  if (!plan->has_costs) PetscCall(TrsPlanCost(&planner->model, plan));
  PetscCall(TrsPlanSum(planner->tables, plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All inputs of a report or an explanation, from the last solution. */
static TrsReportInput report_input(const TrsPlanner planner, const TrsShardingPlan *plan)
{
  return (TrsReportInput){.model = &planner->model,
                          .reservation = &planner->reservation,
                          .space = &planner->space,
                          .search = &planner->search,
                          .plan = plan,
                          .optimum = &planner->optimum,
                          .default_path_ms = planner->default_path_ms};
}

static PetscErrorCode write_files(const TrsPlanner planner, const TrsShardingPlan *plan)
{
  const TrsPlanSettings *settings = &planner->settings;
  TrsReportInput in = report_input(planner, plan);
  TrsText text = {0}, explanation = {0};

  PetscFunctionBegin;
  if (settings->explain) PetscCall(TrsExplain(&in, settings->explain, &explanation));
  if (planner->wants_summary) {
    PetscCall(TrsReplicaChoiceWrite(&planner->model, &planner->choice, &text));
    PetscCall(TrsSummaryWrite(&in, &planner->alternative, &text));
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

/* Cost the copies. Without a choice, the plan's number of copies is the only candidate. */
static PetscErrorCode count_copies(TrsPlanner planner, const TrsShardingPlan *plan)
{
  const int replicas = planner->topology.replicas;

  PetscFunctionBegin;
  planner->sync_ms = 0;
  if (replicas == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsReplicaSync(&planner->model, plan, &planner->sync_ms));
  if (planner->choice.n <= 1)
    planner->choice = (TrsReplicaChoice){
        1, {{replicas, .fits = PETSC_TRUE, .path_ms = plan->critical_path, .sync_ms = planner->sync_ms}}};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Do all of rank 0's work. */
static PetscErrorCode solve_here(TrsPlanner planner, TrsShardingPlan *plan)
{
  PetscFunctionBegin;
  PetscCall(reset(planner));
  PetscCall(try_files(planner));
  if (planner->chooses_replicas) PetscCall(set_replicas(planner, 1));
  if (planner->chooses_replicas && !planner->settings.input) PetscCall(choose_replicas(planner));
  if (planner->settings.input) {
    PetscCall(read_plan(planner, plan));
    PetscCall(TrsReserve(&planner->model, &planner->reservation));
  } else {
    PetscCall(search_plan(planner, plan));
  }
  PetscCall(TrsPlanDescribe(&planner->model, &planner->reservation, plan));
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
  replicas = planner->topology.replicas;
  PetscCallMPI(MPI_Bcast(&replicas, 1, MPI_INT, 0, planner->comm));
  PetscCallMPI(MPI_Bcast(&planner->sync_ms, 1, MPI_DOUBLE, 0, planner->comm));
  if (replicas != planner->topology.replicas) PetscCall(set_replicas(planner, replicas));
  PetscFunctionReturn(PETSC_SUCCESS);
}

TrsPlannedWorld TrsPlannerWorld(TrsPlanner planner)
{
  const TrsTopology *topology = &planner->topology;
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
  PetscCall(reset(*planner));
  PetscCall(TrsTopologyFree(&(*planner)->topology));
  PetscCall(PetscFree((*planner)->shared_miss));
  PetscCall(PetscFree(*planner));
  PetscFunctionReturn(PETSC_SUCCESS);
}
