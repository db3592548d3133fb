/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The embedding tables' optimizer as configured: its numbers, and which states a table keeps. The updates themselves are fused into the
  backward (compute/tbe).
  Source: FBGEMM EmbOptimType, TorchRec fused optimizer keys; src/RULES.md, rules A7 to A11
*/
#pragma once

#include "compute/tbe.h"
#include "spec/table_config.h"

#define TRS_SPARSE_MAX_STATES TRS_TBE_STATES

extern const TrsOptionGroup trs_sparse_optimizer_options;

/* The optimizers of a run's tables: all the same, or some with numbers or a kind of their own (-table_<name>_optimizer, _learning_rate ...). */
typedef struct {
  int n;                        /* distinct ones */
  TrsSparseOptimizerArgs *args; /* [n] step and seed are the trainer's to set */
  int *of_table;                /* [tables] index into args, TrsTbeTable's `optimizer`; NULL: 0 for all */
  float *max_gradient;          /* [tables] 0: no clamping; NULL: none */
} TrsSparseOptimizers;

/*
  TrsSparseOptimizersFromOptions - Read trs_sparse_optimizer_options and every table's own keys, and refuse what has no meaning.

  Not collective.

  In:     tables      n of them are looked up by name
  Out:    optimizers  free with TrsSparseOptimizersFree()
  Errors: OPTION for shampoo, for a weight decay with sgd or adagrad, for modes that FBGEMM alone has
*/
PetscErrorCode TrsSparseOptimizersFromOptions(TrsOptions options, const TrsTableConfigs *tables,
                                              TrsSparseOptimizers *optimizers);
PetscErrorCode TrsSparseOptimizersFree(TrsSparseOptimizers *optimizers);

/* The kind alone of a table's optimizer, not checked against anything. Not collective. */
PetscErrorCode TrsSparseOptimizerKindOf(TrsOptions options, const char *table, TrsSparseOptimizerKind *kind);

/* Table t's. */
const TrsSparseOptimizerArgs *TrsSparseOptimizersOf(const TrsSparseOptimizers *optimizers, int table);

/*
  States of a table: *n of them (at most TRS_SPARSE_MAX_STATES), in the order of TrsTbeTable.state; names as in a checkpoint ("momentum1",
  "exp_avg", "exp_avg_sq"); rowwise[i]: one number a row, else one an element. Not collective.
*/
void TrsSparseOptimizerStates(TrsSparseOptimizerKind kind, int *n, const char *names[TRS_SPARSE_MAX_STATES],
                              PetscBool rowwise[TRS_SPARSE_MAX_STATES]);

/* "rowwise_adagrad" and so on, as in options. */
const char *TrsSparseOptimizerName(TrsSparseOptimizerKind kind);

/*
  Does the optimizer act on a row as a whole, so that a column shard differs from the table
  (src/RULES.md, rule A12)?
*/
PetscBool TrsSparseOptimizerCouplesColumns(TrsSparseOptimizerKind kind);
