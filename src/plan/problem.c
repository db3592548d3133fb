/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/problem.h"

#include "core/clock.h"
#include "plan/cost/shared_cache.h"
#include "plan/plan_result.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/*
  Check the tables' device groups. A run uses the same kind of device for all tables. A dry run
  skips tables of another device group.
*/
static PetscErrorCode check_device_groups(const TrsProblem *problem)
{
  const char *device = problem->machine.is_cuda ? "cuda" : "cpu",
             *planned = problem->topology.is_cuda ? "cuda" : "cpu";

  PetscFunctionBegin;
  for (int t = 0; t < problem->tables->n; t++) {
    const TrsTableConfig *table = &problem->tables->table[t];
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

static PetscErrorCode describe_dense(TrsProblem *problem)
{
  int64_t num_dense = problem->num_dense;
  TrsPlanSettings *settings = &problem->settings;
  TrsDenseFacts facts;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(problem->options, "-num_dense", &num_dense, NULL));
  if (!problem->describe_dense || (settings->has_dense_parameters && !settings->measured))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(problem->describe_dense(problem->options, problem->tables, (int)num_dense, &facts));
  if (!settings->has_dense_parameters) settings->dense_parameter_bytes = facts.parameter_bytes;
  settings->takes_vectors = facts.takes_vectors;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check that the measurements for the measured cost model are there. */
static PetscErrorCode check_rates(TrsProblem *problem)
{
  const TrsRowRates *rates = &problem->topology.rows;

  PetscFunctionBegin;
  if (problem->settings.measured &&
      (rates->read_bw <= 0.0 || rates->update_bw <= 0.0 || rates->stream_bw <= 0.0))
    PetscCall(TrsOptionError(problem->options, "-plan_cost_model",
                             "measured needs -topology_row_read_bw, -topology_row_update_bw and "
                             "-topology_stream_bw: take them from the file that -task bench -bench_topology "
                             "writes"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Determine if the planner chooses the number of copies. If so, reject options that need a fixed
  number.
*/
static PetscErrorCode read_choice(TrsProblem *problem)
{
  static const char *const names[] = {"-topology_hbm_cap_per_rank", "-topology_ddr_cap_per_rank",
                                      "-topology_pod_size"};
  int replicas;

  PetscFunctionBegin;
  PetscCall(TrsPlanReplicas(problem->options,
                            (int64_t)problem->topology.world_size * problem->topology.replicas, &replicas));
  problem->chooses_replicas = (PetscBool)(replicas == 0);
  for (size_t i = 0; replicas == 0 && i < sizeof(names) / sizeof(names[0]); i++)
    if (TrsOptionsIsGiven(problem->options, names[i]))
      PetscCall(TrsOptionError(problem->options, "-plan_replicas",
                               "0, the planner's choice, does not go with %s: leave one out", names[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProblemSetReplicas(TrsProblem *problem, int replicas)
{
  PetscFunctionBegin;
  problem->defaults.replicas = replicas;
  PetscCall(TrsTopologyFree(&problem->topology));
  PetscCall(TrsTopologyFromOptions(problem->options, &problem->defaults, &problem->topology));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProblemSetUp(TrsProblem *problem)
{
  const TrsPlannerMachine *machine = &problem->machine;
  TrsTopologyDefaults defaults = {.is_cuda = PETSC_TRUE};
  int device = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(problem->options, "-device", &device, NULL));
  /* A dry run plans for GPUs, unless the options name the CPU. */
  defaults.is_cuda = (PetscBool)(device != TRS_DEVICE_CPU);
  defaults.world_size = problem->n_ranks;
  if (problem->has_machine) {
    defaults.is_cuda = machine->is_cuda;
    defaults.is_fixed = PETSC_TRUE;
    defaults.local_world_size = machine->local_world_size;
    defaults.hbm_bytes = machine->hbm_bytes;
    defaults.ddr_bytes = machine->ddr_bytes;
  }
  problem->defaults = defaults;
  PetscCall(TrsProblemSetReplicas(problem, 0));
  PetscCall(read_choice(problem));
  if (problem->has_machine) PetscCall(check_device_groups(problem));
  PetscCall(TrsPlanSettingsFromOptions(problem->options, &problem->settings));
  PetscCall(check_rates(problem));
  PetscCall(describe_dense(problem));
  PetscCall(PetscFree(problem->shared_miss));
  if (problem->settings.cache_hit_rates) {
    PetscCall(PetscMalloc1(PetscMax(problem->tables->n, 1), &problem->shared_miss));
    PetscCall(
        TrsSharedMissRates(problem->tables, (double)problem->settings.cache_steps, problem->shared_miss));
  }
  problem->model = (TrsCostModel){&problem->topology, &problem->settings, problem->tables,
                                  problem->shared_miss};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProblemFree(TrsProblem *problem)
{
  PetscFunctionBegin;
  PetscCall(TrsTopologyFree(&problem->topology));
  PetscCall(PetscFree(problem->shared_miss));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Free the last search, but keep the choice of the number of copies. */
static PetscErrorCode reset(TrsSolution *solution)
{
  PetscFunctionBegin;
  PetscCall(TrsPlanSearchFree(&solution->search));
  PetscCall(TrsSearchSpaceFree(&solution->space));
  PetscCall(TrsReservationFree(&solution->reservation));
  solution->search = (TrsPlanSearch){0};
  solution->table_alone = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSolutionFree(TrsSolution *solution)
{
  PetscFunctionBegin;
  PetscCall(reset(solution));
  *solution = (TrsSolution){.table_alone = -1};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute the reservation, list the options, and run the proposers. */
static PetscErrorCode search(const TrsProblem *problem, TrsSolution *s)
{
  PetscFunctionBegin;
  PetscCall(reset(s));
  PetscCall(TrsReserve(&problem->model, &s->reservation));
  if (s->reservation.too_little) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsEnumerate(&problem->model, &s->space, &s->table_alone));
  if (s->table_alone < 0)
    PetscCall(TrsPlanSearchRun(&problem->model, &s->space, &s->reservation, &s->search));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Plan for a candidate's number of copies. Sets whether a plan fits, and its times. */
static PetscErrorCode try_replicas(TrsProblem *problem, TrsReplicaCandidate *candidate, TrsSolution *s)
{
  TrsShardingPlan plan;

  PetscFunctionBegin;
  PetscCall(TrsProblemSetReplicas(problem, candidate->replicas));
  PetscCall(search(problem, s));
  candidate->fits = s->search.best.found;
  if (!candidate->fits) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPlanResult(&problem->model, &s->search, &plan));
  candidate->path_ms = plan.critical_path;
  PetscCall(TrsReplicaSync(&problem->model, &plan, &candidate->sync_ms));
  PetscCall(TrsShardingPlanFree(&plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the number of copies by the plans of the proposers. The optimal proposer then works only
  with the chosen number. If the tables do not fit in the ranks of a copy, they do not fit for
  larger numbers of copies either.
*/
static PetscErrorCode choose_replicas(TrsProblem *problem, TrsSolution *s)
{
  TrsReplicaChoice *choice = &s->choice;
  const TrsReplicaCandidate *best;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsProblemSetReplicas(problem, 1));
  TrsReplicaCandidates(problem->topology.world_size, problem->topology.host_ranks, choice);
  while (n < choice->n) {
    PetscCall(try_replicas(problem, &choice->candidate[n], s));
    if (!choice->candidate[n++].fits) break;
  }
  choice->n = n;
  best = TrsReplicaBest(choice);
  PetscCall(TrsProblemSetReplicas(problem, best ? best->replicas : 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Let the optimal proposer improve the plan, or search for one if there is none. */
static PetscErrorCode optimise(const TrsProblem *problem, TrsSolution *s)
{
  TrsShardingPlan plan = {0};

  PetscFunctionBegin;
  if (problem->settings.any_plan && s->search.best.found) PetscFunctionReturn(PETSC_SUCCESS);
  if (s->search.best.found) {
    PetscCall(TrsPlanResult(&problem->model, &s->search, &plan));
    s->default_path_ms = plan.critical_path;
    PetscCall(TrsShardingPlanFree(&plan));
  }
  PetscCall(TrsOptimise(&problem->model, &s->space, &s->reservation, problem->settings.optimal_time_s,
                        &s->search.best, &s->optimum));
  s->search.attempts = s->optimum.attempts;
  s->search.no_plan_proven = (PetscBool)(s->optimum.bound_ms >= HUGE_VAL);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProblemSolve(TrsProblem *problem, TrsSolution *s)
{
  const TrsPlanSettings *settings = &problem->settings;
  double start_s, start_cpu_s;

  PetscFunctionBegin;
  PetscCall(TrsSolutionFree(s));
  if (problem->chooses_replicas) PetscCall(choose_replicas(problem, s));
  start_s = TrsClock();
  start_cpu_s = TrsPlanCpuClock();
  PetscCall(search(problem, s));
  if (!s->reservation.too_little && s->table_alone < 0 && (settings->wants_optimal || settings->wants_auto))
    PetscCall(optimise(problem, s));
  s->search.seconds = TrsClock() - start_s;
  s->search.cpu_seconds = TrsPlanCpuClock() - start_cpu_s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if the settings have the proposers with which the optimal proposer starts. */
static PetscBool has_default_proposers(const TrsPlanSettings *settings)
{
  const TrsPlanSettings standard = {.n_proposers = 1, .proposer = {TRS_PROPOSER_OPTIMAL}};
  TrsProposerKind a[TRS_PLAN_MAX_PROPOSERS + 4], b[TRS_PLAN_MAX_PROPOSERS + 4];
  const int n = TrsPlanProposers(settings, a);

  return (PetscBool)(n == TrsPlanProposers(&standard, b) && memcmp(a, b, (size_t)n * sizeof(*a)) == 0);
}

PetscErrorCode TrsProblemTryOptimal(const TrsProblem *problem, const TrsSolution *s, TrsOptimum *optimum)
{
  const PetscBool same_start = has_default_proposers(&problem->settings);
  TrsPlanSettings settings = problem->settings;
  TrsCostModel model = problem->model;
  TrsPlanSearch search = {0};
  TrsBestPlan plan = {0};

  PetscFunctionBegin;
  *optimum = (TrsOptimum){.bound_ms = 0};
  /* Without these conditions there is nothing to compare. A search that a time limit stopped
     would also end elsewhere in the next run. */
  if (settings.wants_optimal || settings.wants_auto || !s->search.best.found || s->search.timed_out ||
      settings.advice_s <= 0 || (problem->chooses_replicas && !same_start))
    PetscFunctionReturn(PETSC_SUCCESS);
  settings.n_proposers = 1;
  settings.proposer[0] = TRS_PROPOSER_OPTIMAL;
  settings.timeout_s = settings.advice_s;
  model.settings = &settings;
  if (!same_start) PetscCall(TrsPlanSearchRun(&model, &s->space, &s->reservation, &search));
  if (!search.timed_out) {
    PetscCall(TrsBestPlanCopy(same_start ? &s->search.best : &search.best, &plan));
    PetscCall(TrsOptimise(&model, &s->space, &s->reservation,
                          PetscMin(settings.advice_s, settings.optimal_time_s / 2), &plan, optimum));
  }
  PetscCall(TrsBestPlanFree(&plan));
  PetscCall(TrsPlanSearchFree(&search));
  PetscFunctionReturn(PETSC_SUCCESS);
}
