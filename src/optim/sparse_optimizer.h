/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The embedding tables' optimizer as configured: its numbers and the states that a table keeps. The
  updates themselves are fused into the backward (compute/tbe.h).

  Source: FBGEMM EmbOptimType, TorchRec fused optimizer keys; src/RULES.md, rules A7 to A11
*/
#pragma once

#include "compute/compute_ops.h"
#include "spec/table_config.h"

extern const TrsOptionGroup trs_sparse_optimizer_options;

/*
  The optimizers of a run's tables. Tables share an optimizer unless options of a table set its kind
  or numbers (-table_<name>_optimizer, -table_<name>_learning_rate ...).
*/
typedef struct {
  int n;                        /* number of distinct optimizers */
  TrsSparseOptimizerArgs *args; /* [n]; the trainer sets step and seed */
  /* [tables] index into args, as in TrsTbeTable.optimizer; NULL: 0 for all */
  int *of_table;
  float *max_gradient; /* [tables] 0: no clamping; NULL: no table is clamped */
} TrsSparseOptimizers;

/*
  TrsSparseOptimizersFromOptions - Read trs_sparse_optimizer_options and every table's own keys, and
  reject meaningless settings.

  Not collective.

  In:     tables      their optimizers are looked up by name
  Out:    optimizers  free with TrsSparseOptimizersFree()
  Errors: OPTION for shampoo, for a weight decay with sgd or adagrad, for modes that only FBGEMM has
*/
PetscErrorCode TrsSparseOptimizersFromOptions(TrsOptions options, const TrsTableConfigs *tables,
                                              TrsSparseOptimizers *optimizers);
PetscErrorCode TrsSparseOptimizersFree(TrsSparseOptimizers *optimizers);

/*
  Before training begins, reject an optimizer for which the device's kernels have no step. Not
  collective (same result everywhere). Errors: UNAVAILABLE
*/
PetscErrorCode TrsSparseOptimizersCheck(const TrsSparseOptimizers *optimizers, const TrsComputeOps *compute);

/* Read only the kind of a table's optimizer, without checks. Not collective. */
PetscErrorCode TrsSparseOptimizerKindOf(TrsOptions options, const char *table, TrsSparseOptimizerKind *kind);

/* The optimizer of a table. The result is borrowed. */
const TrsSparseOptimizerArgs *TrsSparseOptimizersOf(const TrsSparseOptimizers *optimizers, int table);

/*
  States of a table: *n of them (at most TRS_OPTIMIZER_STATES), in the order of TrsTbeTable.state;
  names as in a checkpoint ("momentum1", "exp_avg", "exp_avg_sq"); rowwise[i]: one number per row,
  else one per element. Not collective.
*/
void TrsSparseOptimizerStates(TrsSparseOptimizerKind kind, int *n, const char *names[TRS_OPTIMIZER_STATES],
                              PetscBool rowwise[TRS_OPTIMIZER_STATES]);

/*
  Bytes of a shard's states: of_rows for states with one number per row, of_elements for the others.
*/
void TrsSparseOptimizerStateBytes(TrsSparseOptimizerKind kind, int64_t rows, int64_t cols, double *of_rows,
                                  double *of_elements);

/* The optimizer's name in options, such as "rowwise_adagrad". */
const char *TrsSparseOptimizerName(TrsSparseOptimizerKind kind);

/*
  True if the optimizer acts on a row as a whole, so that a column shard gives other numbers than
  the whole table (src/RULES.md, rule A12).
*/
PetscBool TrsSparseOptimizerCouplesColumns(TrsSparseOptimizerKind kind);

/* True if the sum of squared gradients is all that the optimizer needs from the whole row. */
PetscBool TrsSparseOptimizerNeedsSquaresAlone(const TrsSparseOptimizerArgs *args);
