/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/plan_settings.h"

#include <inttypes.h>
#include <string.h>

#define AUTO_S 1.0 /* CPU seconds of the search of -plan_proposers auto */
#define PROPOSERS \
  "grid_search,greedy,greedy_no_depth,uniform,uniform_no_depth,dynamic_programming,embedding_offload_" \
  "scaleup," \
  "optimal,auto"

static const TrsOptionSpec specs[] = {
    {"-plan_batch_size", TRS_OPTION_INT, NULL, "[1,]", NULL, "samples",
     "samples of each rank to plan for (default: -batch_size, in a training times -accumulate_steps)"},
    {"-plan_cost_model", TRS_OPTION_ENUM, "torchrec", NULL, "torchrec,measured", NULL,
     "costs of shards. torchrec: TorchRec's costs, to plan as TorchRec does. measured: the times of what "
     "trshard sends, reads and updates, at the rates that -task bench -bench_topology writes"},
    {"-plan_sharder", TRS_OPTION_ENUM, NULL, NULL, "training,quant", NULL,
     "kind of tables to shard: trained or quantised (default: quant for -task predict, else training)"},
    {"-plan_proposers", TRS_OPTION_ENUMS, "grid_search,greedy,greedy_no_depth,uniform", NULL, PROPOSERS, NULL,
     "searches to run, in this order. optimal: the first four, then a search for better plans with a "
     "proven bound. auto: like optimal, with at most one second for that search"},
    {"-plan_grid_search_max_proposals", TRS_OPTION_INT, "10000", "[0,]", NULL, NULL,
     "grid_search is skipped if there are more combinations than this"},
    {"-plan_greedy_threshold", TRS_OPTION_INT, "0", "[0,]", NULL, "proposals",
     "greedy proposers end after this many proposals without an improvement (0: never)"},
    {"-plan_dp_hbm_bins", TRS_OPTION_INT, "100", "[1,1000000]", NULL, NULL,
     "bins into which dynamic_programming divides a device's memory"},
    {"-plan_timeout_seconds", TRS_OPTION_REAL, NULL, "(0,)", NULL, "s",
     "stop proposing after this time and keep the best plan so far. The planner checks the time before "
     "each proposal. optimal also ends after this time (default: none)"},
    {"-plan_optimal_seconds", TRS_OPTION_REAL, "10", "(0,)", NULL, "s",
     "limit of the optimal proposer's own search, in seconds of a core. The search has a fixed number of "
     "steps for each second, about half of what a core can do, and normally ends with the last step"},
    {"-plan_partitioner", TRS_OPTION_ENUM, "greedy_perf", NULL, "greedy_perf,memory_balanced", NULL,
     "method that gives shards their ranks"},
    {"-plan_greedy_sort_by", TRS_OPTION_ENUM, "storage", NULL, "storage,perf", NULL,
     "greedy_perf places the largest shards first, by this measure"},
    {"-plan_greedy_balance_modules", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "greedy_perf places tables of small modules first"},
    {"-plan_memory_balanced_max_search_count", TRS_OPTION_INT, "10", "[0,]", NULL, NULL,
     "memory_balanced: the most bisections"},
    {"-plan_memory_balanced_tolerance", TRS_OPTION_REAL, "0.02", "[0,]", NULL, NULL,
     "memory_balanced: share of performance that may be lost for balance"},
    {"-plan_memory_balanced_balance_modules", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "memory_balanced places tables of small modules first"},
    {"-plan_storage_reservation", TRS_OPTION_ENUM, "heuristical", NULL,
     "heuristical,fixed_percentage,fixed_absolute,sku_aware,inference", NULL,
     "how to reserve memory for everything that is not a table"},
    {"-plan_storage_reservation_percentage", TRS_OPTION_REAL, "0.15", "[0,1]", NULL, NULL,
     "share of the device memory to reserve (heuristical, fixed_percentage, inference)"},
    {"-plan_storage_reservation_bytes", TRS_OPTION_BYTES, "0", "[0,]", NULL, "bytes",
     "device memory to reserve (fixed_absolute, sku_aware)"},
    {"-plan_storage_reservation_runtime_overhead", TRS_OPTION_BYTES, "0", "[0,]", NULL, "bytes",
     "device memory to reserve for the runtime (sku_aware)"},
    {"-plan_storage_reservation_model_base", TRS_OPTION_BYTES, NULL, "[0,]", NULL, "bytes",
     "measured memory of the dense model (sku_aware; default: none)"},
    {"-plan_parameter_multiplier", TRS_OPTION_REAL, "6.0", "[0,]", NULL, NULL,
     "memory of dense parameters, gradients and optimizer states, as a multiple of the parameters "
     "(heuristical, sku_aware)"},
    {"-plan_dense_tensor_estimate", TRS_OPTION_BYTES, "0", "[0,]", NULL, "bytes",
     "memory of the dense part (0: computed from its parameters)"},
    {"-plan_dense_parameter_bytes", TRS_OPTION_BYTES, NULL, "[0,]", NULL, "bytes",
     "bytes of the dense parameters (default: computed from the model's options)"},
    {"-plan_pipeline_type", TRS_OPTION_ENUM, "none", NULL,
     "none,train_base,train_sparse_dist,train_prefetch_sparse_dist", NULL,
     "training pipeline whose buffers are counted"},
    {"-plan_prefetch_pipeline", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "plan for caches that are filled one batch ahead"},
    {"-plan_cache_hit_rates", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "take the bandwidth of fused_uvm_caching from the hit rate if a table has cache_stats_ keys, "
     "otherwise from the load factor, as TorchRec does"},
    {"-plan_cache_steps", TRS_OPTION_INT, "0", "[0,]", NULL, "steps",
     "number of steps, beginning with empty caches, that cache_stats_ keys describe; 0: so many that the "
     "start does not count"},
    {"-plan_run_embedding_at_peak_memory", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "count the embedding outputs at the peak of memory"},
    {"-plan_is_inference", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "plan without backward pass and optimizer states"},
    {"-plan_use_exact_enumerate_order", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "visit modules from the first to the last"},
    {"-plan_input", TRS_OPTION_FILE, NULL, NULL, NULL, NULL, "use this plan (JSON) as it is"},
    {"-plan_output", TRS_OPTION_FILE, NULL, NULL, NULL, NULL, "write the plan as JSON"},
    {"-plan_search_space", TRS_OPTION_FILE, NULL, NULL, NULL, NULL, "write every sharding option as JSON"},
    {"-plan_report", TRS_OPTION_FILE, NULL, NULL, "stdout", NULL,
     "write the human-readable report to this file, or to stdout"},
    {"-plan_explain", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "explain the choice for this table: its options, their costs, and the second best"},
    {"-plan_list_tables", TRS_OPTION_BOOL, NULL, NULL, NULL, NULL,
     "-task plan shows a line for each table (default: if there are at most 50)"},
    {"-plan_advice_seconds", TRS_OPTION_REAL, "0.5", "[0,]", NULL, "s",
     "the most seconds of a core for advice; 0: none. -task plan shows what the optimal proposer saves. "
     "Without a plan, each change that may help is tried"},
};
const TrsOptionGroup trs_planner_options = TRS_OPTION_GROUP("Planner", specs);

const char *TrsProposerKindName(TrsProposerKind kind)
{
  static const char *const names[TRS_N_PROPOSERS] = {"grid_search",
                                                     "greedy",
                                                     "greedy_no_depth",
                                                     "uniform",
                                                     "uniform_no_depth",
                                                     "dynamic_programming",
                                                     "embedding_offload_scaleup",
                                                     "optimal",
                                                     "auto"};

  return names[kind];
}

TrsSparseOptimizerKind TrsPlanOptimizer(const TrsPlanSettings *settings, const TrsTableConfig *table)
{
  return table->constraints.has_optimizer ? table->constraints.optimizer : settings->optimizer;
}

TrsOptimizerState TrsPlanOptimizerState(const TrsPlanSettings *settings, const TrsTableConfig *table)
{
#define PLANNED_STATE(KIND, word, shape0, name0, shape1, name1, planned, ...) TRS_STATE_##planned,
  static const TrsOptimizerState states[] = {TRS_EMBEDDING_OPTIMIZERS(PLANNED_STATE)};

  return settings->is_quant || settings->is_inference ? TRS_STATE_NONE
                                                      : states[TrsPlanOptimizer(settings, table)];
}

/*
  Read the precisions of an exchange's messages. If the exchange has no options of its own, use the
  precisions for all exchanges (comm/qcomm.h). fp8 is refused for messages that are summed.
*/
static PetscErrorCode read_wire(TrsOptions options, const char *forward_name, const char *backward_name,
                                PetscBool sums, TrsPlanWire *wire)
{
#define CODEC_BYTES(KIND, word, bytes, summed_bytes) {bytes, summed_bytes},
  static const double bytes[][2] = {TRS_CODECS(CODEC_BYTES)};
  int forward = TRS_CODEC_FP32, backward = TRS_CODEC_FP32;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-qcomm_forward_precision", &forward, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-qcomm_backward_precision", &backward, NULL));
  PetscCall(TrsOptionsGetEnum(options, forward_name, &forward, NULL));
  PetscCall(TrsOptionsGetEnum(options, backward_name, &backward, NULL));
  *wire = (TrsPlanWire){.is_coded = (PetscBool)(forward != TRS_CODEC_FP32 || backward != TRS_CODEC_FP32),
                        .fwd = bytes[forward][sums],
                        .bwd = bytes[backward][sums]};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_cost_model(TrsOptions options, TrsPlanSettings *s)
{
  int task = 0, sharder, optimizer = 0, pipeline = 0, cost_model = 0, sync = 0;
  int64_t n_batches = 1;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-task", &task, NULL));
  if (task == TRS_TASK_TRAIN || task == TRS_TASK_PLAN)
    PetscCall(TrsOptionsGetInt(options, "-accumulate_steps", &n_batches, NULL));
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &s->batch_size, NULL));
  s->batch_size *= n_batches;
  PetscCall(TrsOptionsGetInt(options, "-plan_batch_size", &s->batch_size, NULL));
  sharder = task == TRS_TASK_PREDICT;
  PetscCall(TrsOptionsGetEnum(options, "-plan_sharder", &sharder, NULL));
  s->is_quant = (PetscBool)(sharder == 1);
  PetscCall(TrsOptionsGetBool(options, "-plan_is_inference", &s->is_inference, NULL));
  PetscCall(TrsOptionsGetBool(options, "-plan_prefetch_pipeline", &s->prefetch_pipeline, NULL));
  PetscCall(TrsOptionsGetBool(options, "-plan_cache_hit_rates", &s->cache_hit_rates, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_cache_steps", &s->cache_steps, NULL));
  PetscCall(TrsOptionsGetBool(options, "-plan_run_embedding_at_peak_memory", &s->at_peak_memory, NULL));
  PetscCall(TrsOptionsGetBool(options, "-plan_use_exact_enumerate_order", &s->exact_enumerate_order, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-plan_pipeline_type", &pipeline, NULL));
  s->pipeline = (TrsPlanPipeline)pipeline;
  PetscCall(TrsOptionsGetEnum(options, "-embedding_optimizer", &optimizer, NULL));
  s->optimizer = (TrsSparseOptimizerKind)optimizer;
  PetscCall(TrsOptionsGetEnum(options, "-plan_cost_model", &cost_model, NULL));
  s->measured = (PetscBool)(cost_model == 1);
  PetscCall(TrsOptionsGetEnum(options, "-replica_sync", &sync, NULL));
  s->merges_copies = (PetscBool)(sync == TRS_REPLICA_SYNC_GRADIENTS);
  PetscCall(TrsOptionsGetInt(options, "-replica_sync_every", &s->average_every, NULL));
  if (s->is_quant) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(read_wire(options, "-qcomm_all_to_all_forward_precision", "-qcomm_all_to_all_backward_precision",
                      PETSC_FALSE, &s->a2a));
  PetscCall(read_wire(options, "-qcomm_reduce_scatter_forward_precision",
                      "-qcomm_reduce_scatter_backward_precision", PETSC_TRUE, &s->sr));
  PetscCall(read_wire(options, "-qcomm_sequence_forward_precision", "-qcomm_sequence_backward_precision",
                      PETSC_FALSE, &s->sequence));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_search(TrsOptions options, TrsPlanSettings *s)
{
  const int *index = NULL;
  int partitioner = 0, sort_by = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnums(options, "-plan_proposers", &s->n_proposers, &index, NULL));
  if (s->n_proposers < 1 || s->n_proposers > TRS_PLAN_MAX_PROPOSERS)
    PetscCall(TrsOptionError(options, "-plan_proposers", "%d proposers; give 1 to %d", s->n_proposers,
                             TRS_PLAN_MAX_PROPOSERS));
  for (int i = 0; i < s->n_proposers; i++) s->proposer[i] = (TrsProposerKind)index[i];
  PetscCall(
      TrsOptionsGetInt(options, "-plan_grid_search_max_proposals", &s->grid_search_max_proposals, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_greedy_threshold", &s->greedy_threshold, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_dp_hbm_bins", &s->dp_hbm_bins, NULL));
  PetscCall(TrsOptionsGetReal(options, "-plan_timeout_seconds", &s->timeout_s, NULL));
  PetscCall(TrsOptionsGetReal(options, "-plan_optimal_seconds", &s->optimal_time_s, NULL));
  if (s->timeout_s > 0) s->optimal_time_s = PetscMin(s->optimal_time_s, s->timeout_s);
  for (int i = 0; i < s->n_proposers; i++) {
    if (s->proposer[i] == TRS_PROPOSER_OPTIMAL) s->wants_optimal = PETSC_TRUE;
    if (s->proposer[i] == TRS_PROPOSER_AUTO) s->wants_auto = PETSC_TRUE;
  }
  if (s->wants_auto && !s->wants_optimal) s->optimal_time_s = PetscMin(AUTO_S, s->optimal_time_s);
  PetscCall(TrsOptionsGetEnum(options, "-plan_partitioner", &partitioner, NULL));
  s->memory_balanced = (PetscBool)(partitioner == 1);
  PetscCall(TrsOptionsGetEnum(options, "-plan_greedy_sort_by", &sort_by, NULL));
  s->greedy_sort_by_perf = (PetscBool)(sort_by == 1);
  PetscCall(TrsOptionsGetBool(options, "-plan_greedy_balance_modules", &s->greedy_balance_modules, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_memory_balanced_max_search_count",
                             &s->memory_balanced_max_search_count, NULL));
  PetscCall(
      TrsOptionsGetReal(options, "-plan_memory_balanced_tolerance", &s->memory_balanced_tolerance, NULL));
  PetscCall(TrsOptionsGetBool(options, "-plan_memory_balanced_balance_modules",
                              &s->memory_balanced_balance_modules, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_reservation(TrsOptions options, TrsPlanSettings *s)
{
  int kind = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-plan_storage_reservation", &kind, NULL));
  s->reservation = (TrsReservationKind)kind;
  PetscCall(
      TrsOptionsGetReal(options, "-plan_storage_reservation_percentage", &s->reservation_percentage, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_storage_reservation_bytes", &s->reservation_bytes, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_storage_reservation_runtime_overhead",
                             &s->runtime_overhead_bytes, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_storage_reservation_model_base", &s->model_base_bytes,
                             &s->has_model_base));
  PetscCall(TrsOptionsGetReal(options, "-plan_parameter_multiplier", &s->parameter_multiplier, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_dense_tensor_estimate", &s->dense_tensor_bytes, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_dense_parameter_bytes", &s->dense_parameter_bytes,
                             &s->has_dense_parameters));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanSettingsFromOptions(TrsOptions options, TrsPlanSettings *settings)
{
  PetscFunctionBegin;
  *settings = (TrsPlanSettings){0};
  PetscCall(read_cost_model(options, settings));
  PetscCall(read_search(options, settings));
  PetscCall(read_reservation(options, settings));
  PetscCall(TrsOptionsGetString(options, "-plan_input", &settings->input, NULL));
  PetscCall(TrsOptionsGetString(options, "-plan_output", &settings->output, NULL));
  PetscCall(TrsOptionsGetString(options, "-plan_search_space", &settings->search_space, NULL));
  PetscCall(TrsOptionsGetString(options, "-plan_report", &settings->report, NULL));
  PetscCall(TrsOptionsGetString(options, "-plan_explain", &settings->explain, NULL));
  PetscCall(TrsOptionsGetBool(options, "-plan_list_tables", &settings->list_tables, NULL));
  PetscCall(TrsOptionsGetReal(options, "-plan_advice_seconds", &settings->advice_s, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
