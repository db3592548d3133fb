/* SPDX-License-Identifier: BSD-3-Clause */
/* All settings of the planner except the tables and the topology. */
#pragma once

#include "spec/table_config.h"

extern const TrsOptionGroup trs_planner_options;

/* The largest number of tables for which -task plan prints one line per table. */
enum { TRS_PLAN_LISTED_TABLES = 50 };

typedef enum {
  TRS_PLAN_PIPELINE_NONE,
  TRS_PLAN_PIPELINE_BASE,
  TRS_PLAN_PIPELINE_SPARSE_DIST,
  TRS_PLAN_PIPELINE_PREFETCH
} TrsPlanPipeline;

typedef enum {
  TRS_RESERVATION_HEURISTICAL,
  TRS_RESERVATION_FIXED_PERCENTAGE,
  TRS_RESERVATION_FIXED_ABSOLUTE,
  TRS_RESERVATION_SKU_AWARE,
  TRS_RESERVATION_INFERENCE
} TrsReservationKind;

typedef enum {
  TRS_PROPOSER_GRID_SEARCH,
  TRS_PROPOSER_GREEDY,
  TRS_PROPOSER_GREEDY_NO_DEPTH,
  TRS_PROPOSER_UNIFORM,
  TRS_PROPOSER_UNIFORM_NO_DEPTH,
  TRS_PROPOSER_DYNAMIC_PROGRAMMING,
  TRS_PROPOSER_SCALEUP,
  TRS_PROPOSER_OPTIMAL, /* TorchRec's default proposers, then the search of optimal.h */
  TRS_PROPOSER_AUTO,    /* like optimal, but within one second */
  TRS_N_PROPOSERS
} TrsProposerKind;

/* The size of the optimizer state relative to the weights, for the storage estimator. */
typedef enum { TRS_STATE_NONE, TRS_STATE_ROWWISE, TRS_STATE_ONE, TRS_STATE_TWO } TrsOptimizerState;

enum { TRS_PLAN_MAX_PROPOSERS = 16 };

/*
  Bytes per message element under -qcomm_. Without is_coded, elements have the size of the table's
  elements.
*/
typedef struct {
  PetscBool is_coded;
  double fwd, bwd;
} TrsPlanWire;

typedef struct {
  int64_t batch_size;
  PetscBool is_quant, is_inference, prefetch_pipeline, at_peak_memory, exact_enumerate_order;
  PetscBool cache_hit_rates; /* true: a cache's bandwidth depends on its hit rate */
  int64_t cache_steps;       /* number of steps that the cache statistics cover; 0: many */
  PetscBool measured;        /* true: -plan_cost_model measured */
  PetscBool takes_vectors;   /* see TrsDenseFacts */
  /* true: -replica_sync gradients, so all copies make the same updates */
  PetscBool merges_copies;
  /* without merges_copies: number of steps between two averages of the copies */
  int64_t average_every;
  TrsPlanPipeline pipeline;
  /* the optimizer of tables that have no optimizer of their own */
  TrsSparseOptimizerKind optimizer;
  /* Messages of the pooled rows' all-to-alls and reduce-scatters, and of the sequence tables'
     all-to-alls. */
  TrsPlanWire a2a, sr, sequence;

  int n_proposers;
  TrsProposerKind proposer[TRS_PLAN_MAX_PROPOSERS];
  int64_t grid_search_max_proposals, greedy_threshold, dp_hbm_bins;
  double timeout_s;   /* -plan_timeout_seconds; 0: no limit */
  PetscBool any_plan; /* true: the first plan ends the search */
  PetscBool wants_optimal, wants_auto;
  double optimal_time_s; /* limit on the optimal proposer's search, in CPU seconds */

  PetscBool memory_balanced, greedy_sort_by_perf, greedy_balance_modules, memory_balanced_balance_modules;
  int64_t memory_balanced_max_search_count;
  double memory_balanced_tolerance;

  TrsReservationKind reservation;
  double reservation_percentage, parameter_multiplier;
  int64_t reservation_bytes, runtime_overhead_bytes, model_base_bytes, dense_tensor_bytes,
      dense_parameter_bytes;
  PetscBool has_model_base, has_dense_parameters;

  double advice_s; /* limit on the search for advice, in CPU seconds; 0: no advice */
  /* print one line per table even if there are more than TRS_PLAN_LISTED_TABLES */
  PetscBool list_tables;

  /* Paths, borrowed from the options; NULL: the option is not given. */
  const char *input, *output, *search_space, *report, *explain;
} TrsPlanSettings;

/* The table's own optimizer. If it has none, the optimizer for all tables. Not collective. */
TrsSparseOptimizerKind TrsPlanOptimizer(const TrsPlanSettings *settings, const TrsTableConfig *table);
/* The state per row of the table's optimizer, as the planner counts it. Not collective. */
TrsOptimizerState TrsPlanOptimizerState(const TrsPlanSettings *settings, const TrsTableConfig *table);

/*
  TrsPlanSettingsFromOptions - Read the -plan_ options and the model's options that the cost model
    uses.

  Not collective. Errors: OPTION for contradictions
*/
PetscErrorCode TrsPlanSettingsFromOptions(TrsOptions options, TrsPlanSettings *settings);

const char *TrsProposerKindName(TrsProposerKind kind);
