/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/plan_settings.h"

#include "plan/planner.h"

#include <inttypes.h>
#include <string.h>

#define AUTO_S 1.0 /* of a core, for -plan_proposers auto */
#define PROPOSERS \
  "grid_search,greedy,greedy_no_depth,uniform,uniform_no_depth,dynamic_programming,embedding_offload_" \
  "scaleup," \
  "optimal,auto"

static const TrsOptionSpec specs[] = {
    {"-plan_batch_size", TRS_OPTION_INT, NULL, "[1,]", NULL, "samples",
     "samples a rank to plan for (default: -batch_size)"},
    {"-plan_sharder", TRS_OPTION_ENUM, NULL, NULL, "training,quant", NULL,
     "what is sharded: trained or quantised tables (default: quant for -task predict)"},
    {"-plan_proposers", TRS_OPTION_ENUMS, "grid_search,greedy,greedy_no_depth,uniform", NULL, PROPOSERS, NULL,
     "searches, in this order; optimal: the default list, then a search for better plans with a proven "
     "bound; auto: the same with at most a second for that search"},
    {"-plan_grid_search_max_proposals", TRS_OPTION_INT, "10000", "[0,]", NULL, NULL,
     "grid_search does nothing when there are more combinations"},
    {"-plan_greedy_threshold", TRS_OPTION_INT, "0", "[0,]", NULL, "proposals",
     "greedy proposers end after so many without gain (0: never)"},
    {"-plan_dp_hbm_bins", TRS_OPTION_INT, "100", "[1,1000000]", NULL, NULL,
     "bins of a device's memory in dynamic_programming"},
    {"-plan_timeout_seconds", TRS_OPTION_REAL, NULL, "(0,)", NULL, "s",
     "end the search and keep the best found so far (default: none)"},
    {"-plan_optimal_seconds", TRS_OPTION_REAL, "10", "(0,)", NULL, "s",
     "limit of the optimal proposer's own search, in seconds of a core; a fixed number of steps a second, "
     "about half of what a core can do, ends it before"},
    {"-plan_partitioner", TRS_OPTION_ENUM, "greedy_perf", NULL, "greedy_perf,memory_balanced", NULL,
     "how shards get their ranks"},
    {"-plan_greedy_sort_by", TRS_OPTION_ENUM, "storage", NULL, "storage,perf", NULL,
     "greedy_perf places the largest first by this measure"},
    {"-plan_greedy_balance_modules", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "greedy_perf places tables of small modules first"},
    {"-plan_memory_balanced_max_search_count", TRS_OPTION_INT, "10", "[0,]", NULL, NULL,
     "memory_balanced: at most so many bisections"},
    {"-plan_memory_balanced_tolerance", TRS_OPTION_REAL, "0.02", "[0,]", NULL, NULL,
     "memory_balanced: part of perf given up for balance"},
    {"-plan_memory_balanced_balance_modules", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "memory_balanced places tables of small modules first"},
    {"-plan_storage_reservation", TRS_OPTION_ENUM, "heuristical", NULL,
     "heuristical,fixed_percentage,fixed_absolute,sku_aware,inference", NULL,
     "memory kept for what is not a table"},
    {"-plan_storage_reservation_percentage", TRS_OPTION_REAL, "0.15", "[0,1]", NULL, NULL,
     "part of the device memory kept (heuristical, fixed_percentage, inference)"},
    {"-plan_storage_reservation_bytes", TRS_OPTION_BYTES, "0", "[0,]", NULL, "bytes",
     "device memory kept (fixed_absolute, sku_aware)"},
    {"-plan_storage_reservation_runtime_overhead", TRS_OPTION_BYTES, "0", "[0,]", NULL, "bytes",
     "device memory kept for the runtime (sku_aware)"},
    {"-plan_storage_reservation_model_base", TRS_OPTION_BYTES, NULL, "[0,]", NULL, "bytes",
     "measured memory of the dense model (sku_aware; default: none)"},
    {"-plan_parameter_multiplier", TRS_OPTION_REAL, "6.0", "[0,]", NULL, NULL,
     "dense parameters with gradients and optimizer over parameters (heuristical, sku_aware)"},
    {"-plan_dense_tensor_estimate", TRS_OPTION_BYTES, "0", "[0,]", NULL, "bytes",
     "memory of the dense part (0: from its parameters)"},
    {"-plan_dense_parameter_bytes", TRS_OPTION_BYTES, NULL, "[0,]", NULL, "bytes",
     "bytes of the dense parameters (default: computed from the model's options)"},
    {"-plan_pipeline_type", TRS_OPTION_ENUM, "none", NULL,
     "none,train_base,train_sparse_dist,train_prefetch_sparse_dist", NULL,
     "training pipeline whose buffers are counted"},
    {"-plan_prefetch_pipeline", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "caches are filled one batch ahead"},
    {"-plan_run_embedding_at_peak_memory", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "the embedding outputs add to the peak of memory"},
    {"-plan_is_inference", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "no backward pass, no optimizer state"},
    {"-plan_use_exact_enumerate_order", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "visit modules first to last"},
    {"-plan_input", TRS_OPTION_FILE, NULL, NULL, NULL, NULL, "use this plan (JSON) as it is"},
    {"-plan_output", TRS_OPTION_FILE, NULL, NULL, NULL, NULL, "write the plan as JSON"},
    {"-plan_search_space", TRS_OPTION_FILE, NULL, NULL, NULL, NULL, "write every sharding option as JSON"},
    {"-plan_report", TRS_OPTION_FILE, NULL, NULL, "stdout", NULL,
     "write the human-readable report to this file, or to stdout"},
    {"-plan_explain", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "explain the choice for this table: its options, their costs, what came second"},
};
const TrsOptionGroup trs_planner_options = TRS_OPTION_GROUP("Planner", specs);

/* -embedding_optimizer: none, sgd, adagrad, rowwise_adagrad, adam, and those with one element of state a weight. */
enum {
  TRS_OPTIMIZER_NONE,
  TRS_OPTIMIZER_SGD,
  TRS_OPTIMIZER_ADAGRAD,
  TRS_OPTIMIZER_ROWWISE_ADAGRAD,
  TRS_OPTIMIZER_ADAM
};
/* -qcomm_..._precision: fp32, fp16, bf16, fp8, int8 */
enum { TRS_QCOMM_FP32 };
/* -interaction: dot, dcn, cat */
enum { TRS_INTERACTION_DOT, TRS_INTERACTION_DCN };
/* -task: train, plan, eval, predict, bench */
enum { TRS_TASK_PREDICT = 3 };

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

TrsOptimizerState TrsPlanOptimizerState(int optimizer, PetscBool is_quant)
{
  if (optimizer == TRS_OPTIMIZER_NONE || optimizer == TRS_OPTIMIZER_SGD || is_quant) return TRS_STATE_NONE;
  if (optimizer == TRS_OPTIMIZER_ADAM) return TRS_STATE_TWO;
  return optimizer == TRS_OPTIMIZER_ROWWISE_ADAGRAD ? TRS_STATE_ROWWISE : TRS_STATE_ONE;
}

/* What an exchange's messages have: its own precisions, or else those of all (comm/qcomm.h). fp8 cannot be summed. */
static PetscErrorCode read_wire(TrsOptions options, const char *forward_name, const char *backward_name,
                                PetscBool sums, TrsPlanWire *wire)
{
  const double bytes[] = {4, 2, 2, sums ? 2 : 1, 1};
  int forward = TRS_QCOMM_FP32, backward = TRS_QCOMM_FP32;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-qcomm_forward_precision", &forward, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-qcomm_backward_precision", &backward, NULL));
  PetscCall(TrsOptionsGetEnum(options, forward_name, &forward, NULL));
  PetscCall(TrsOptionsGetEnum(options, backward_name, &backward, NULL));
  *wire = (TrsPlanWire){.is_coded = (PetscBool)(forward != TRS_QCOMM_FP32 || backward != TRS_QCOMM_FP32),
                        .fwd = bytes[forward],
                        .bwd = bytes[backward]};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_cost_model(TrsOptions options, TrsPlanSettings *s)
{
  int task = 0, sharder, optimizer = 0, pipeline = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &s->batch_size, NULL));
  PetscCall(TrsOptionsGetInt(options, "-plan_batch_size", &s->batch_size, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-task", &task, NULL));
  sharder = task == TRS_TASK_PREDICT;
  PetscCall(TrsOptionsGetEnum(options, "-plan_sharder", &sharder, NULL));
  s->is_quant = (PetscBool)(sharder == 1);
  PetscCall(TrsOptionsGetBool(options, "-plan_is_inference", &s->is_inference, NULL));
  PetscCall(TrsOptionsGetBool(options, "-plan_prefetch_pipeline", &s->prefetch_pipeline, NULL));
  PetscCall(TrsOptionsGetBool(options, "-plan_run_embedding_at_peak_memory", &s->at_peak_memory, NULL));
  PetscCall(TrsOptionsGetBool(options, "-plan_use_exact_enumerate_order", &s->exact_enumerate_order, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-plan_pipeline_type", &pipeline, NULL));
  s->pipeline = (TrsPlanPipeline)pipeline;
  PetscCall(TrsOptionsGetEnum(options, "-embedding_optimizer", &optimizer, NULL));
  s->optimizer_state = TrsPlanOptimizerState(optimizer, s->is_quant);
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

/* Weights and biases of a chain of linear layers; *width is its input and becomes its output. */
static double layer_parameters(int n, const int64_t *sizes, double *width)
{
  double parameters = 0;

  for (int i = 0; i < n; i++) {
    parameters += ((double)sizes[i] * *width) + (double)sizes[i];
    *width = (double)sizes[i];
  }
  return parameters;
}

/* float32 bytes of dense_arch, interaction, over_arch and position weights. */
static PetscErrorCode count_dense_parameters(TrsOptions options, const TrsTableConfigs *tables,
                                             int64_t num_dense, int64_t *bytes)
{
  int64_t n_cross = 3, rank = 512;
  int64_t standard_dense[3] = {512, 256, 0}, standard_over[4] = {512, 512, 256, 1};
  const int64_t *dense = standard_dense, *over = standard_over;
  int n_dense = 0, n_over = 0, interaction = TRS_INTERACTION_DOT;
  double parameters = 0, width, total_dim = 0, n_features = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-num_dense", &num_dense, NULL));
  PetscCall(TrsOptionsGetInts(options, "-dense_arch", &n_dense, &dense, NULL));
  PetscCall(TrsOptionsGetInts(options, "-over_arch", &n_over, &over, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-interaction", &interaction, NULL));
  PetscCall(TrsOptionsGetInt(options, "-dcn_num_layers", &n_cross, NULL));
  PetscCall(TrsOptionsGetInt(options, "-dcn_low_rank_dim", &rank, NULL));
  if (n_dense == 0) {
    standard_dense[2] = tables->n ? tables->table[0].embedding_dim : 0;
    dense = standard_dense;
    n_dense = 3;
  }
  if (n_over == 0) {
    over = standard_over;
    n_over = 4;
  }
  for (int t = 0; t < tables->n; t++) {
    const TrsTableConfig *table = &tables->table[t];
    const double vectors = (double)table->n_features * TrsTableVectors(table);

    total_dim += table->embedding_dim * vectors;
    n_features += vectors;
    for (int f = 0; table->max_feature_lengths && f < table->n_features; f++)
      parameters += table->max_feature_lengths[f];
  }
  width = 0;
  if (num_dense > 0) {
    width = (double)num_dense;
    parameters += layer_parameters(n_dense, dense, &width);
    n_features += 1;
  }
  if (interaction == TRS_INTERACTION_DOT) {
    width += n_features * (n_features - 1) / 2;
  } else {
    width += total_dim;
    if (interaction == TRS_INTERACTION_DCN)
      parameters += (double)n_cross * (2 * width * (double)rank + width);
  }
  parameters += layer_parameters(n_over, over, &width);
  *bytes = (int64_t)(4 * parameters);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_reservation(TrsOptions options, const TrsTableConfigs *tables, int64_t num_dense,
                                       TrsPlanSettings *s)
{
  int kind = 0;
  PetscBool set;

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
  PetscCall(TrsOptionsGetInt(options, "-plan_dense_parameter_bytes", &s->dense_parameter_bytes, &set));
  if (!set) PetscCall(count_dense_parameters(options, tables, num_dense, &s->dense_parameter_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanSettingsFromOptions(TrsOptions options, const TrsTableConfigs *tables,
                                          int64_t num_dense, TrsPlanSettings *settings)
{
  PetscFunctionBegin;
  *settings = (TrsPlanSettings){0};
  PetscCall(read_cost_model(options, settings));
  PetscCall(read_search(options, settings));
  PetscCall(read_reservation(options, tables, num_dense, settings));
  PetscCall(TrsOptionsGetString(options, "-plan_input", &settings->input, NULL));
  PetscCall(TrsOptionsGetString(options, "-plan_output", &settings->output, NULL));
  PetscCall(TrsOptionsGetString(options, "-plan_search_space", &settings->search_space, NULL));
  PetscCall(TrsOptionsGetString(options, "-plan_report", &settings->report, NULL));
  PetscCall(TrsOptionsGetString(options, "-plan_explain", &settings->explain, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
