/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The embedding tables' optimizer as configured: its numbers, and which states a table keeps. The
  updates themselves are fused into the backward (compute/tbe).

  Source: FBGEMM EmbOptimType, TorchRec fused optimizer keys; src/RULES.md, rules A7 to A11
*/
#pragma once

#include "compute/compute_ops.h"
#include "spec/table_config.h"

extern const TrsOptionGroup trs_sparse_optimizer_options;

/*
  The optimizers of a run's tables. All tables may have the same one, or some tables a kind or
  numbers of their own (-table_<name>_optimizer, -table_<name>_learning_rate ...).
*/
typedef struct {
  int n;                        /* number of distinct optimizers */
  TrsSparseOptimizerArgs *args; /* [n] the trainer sets step and seed */
  /* [tables] index into args, as in TrsTbeTable.optimizer; NULL: 0 for all */
  int *of_table;
  float *max_gradient; /* [tables] 0: no clamping; NULL: no table is clamped */
} TrsSparseOptimizers;

/*
  TrsSparseOptimizersFromOptions - Read trs_sparse_optimizer_options and every table's own keys, and
  refuse meaningless settings.

  Not collective.

  In:     tables      n of them are looked up by name
  Out:    optimizers  free with TrsSparseOptimizersFree()
  Errors: OPTION for shampoo, for a weight decay with sgd or adagrad, for modes that FBGEMM alone
          has
*/
PetscErrorCode TrsSparseOptimizersFromOptions(TrsOptions options, const TrsTableConfigs *tables,
                                              TrsSparseOptimizers *optimizers);
PetscErrorCode TrsSparseOptimizersFree(TrsSparseOptimizers *optimizers);

/*
  Refuse an optimizer that a device's kernels have no step of, before a training begins. Not
  collective (same result everywhere). Errors: UNAVAILABLE
*/
PetscErrorCode TrsSparseOptimizersCheck(const TrsSparseOptimizers *optimizers, const TrsComputeOps *compute);

/* The kind alone of a table's optimizer, not checked against anything. Not collective. */
PetscErrorCode TrsSparseOptimizerKindOf(TrsOptions options, const char *table, TrsSparseOptimizerKind *kind);

/* The optimizer of a table. The result is borrowed. */
const TrsSparseOptimizerArgs *TrsSparseOptimizersOf(const TrsSparseOptimizers *optimizers, int table);

/*
  States of a table: *n of them (at most TRS_OPTIMIZER_STATES), in the order of TrsTbeTable.state;
  names as in a checkpoint ("momentum1", "exp_avg", "exp_avg_sq"); rowwise[i]: one number a row,
  else one an element. Not collective.
*/
void TrsSparseOptimizerStates(TrsSparseOptimizerKind kind, int *n, const char *names[TRS_OPTIMIZER_STATES],
                              PetscBool rowwise[TRS_OPTIMIZER_STATES]);

/* Bytes of the states of a shard: of those with a number a row, and with one an element. */
void TrsSparseOptimizerStateBytes(TrsSparseOptimizerKind kind, int64_t rows, int64_t cols, double *of_rows,
                                  double *of_elements);

/* The optimizer's name in options, such as "rowwise_adagrad". */
const char *TrsSparseOptimizerName(TrsSparseOptimizerKind kind);

/*
  Does the optimizer act on a row as a whole, so that a column shard differs from the table
  (src/RULES.md, rule A12)?
*/
PetscBool TrsSparseOptimizerCouplesColumns(TrsSparseOptimizerKind kind);

/* Is the sum of a row's squared gradients all that the optimizer needs of the row as a whole? */
PetscBool TrsSparseOptimizerNeedsSquaresAlone(const TrsSparseOptimizerArgs *args);
