/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The embedding tables' optimizer as the options set it: its numbers, and the states that a table
  keeps. The backward's kernels apply the updates (compute/tbe.h).

  Source: FBGEMM EmbOptimType, TorchRec fused optimizer keys; src/RULES.md, rules A7 to A11
*/
#pragma once

#include "compute/compute_ops.h"
#include "spec/table_config.h"

extern const TrsOptionGroup trs_sparse_optimizer_options;

/*
  The optimizers of a run's tables. All tables share one optimizer, unless a table has options for
  its own kind or numbers (-table_<name>_optimizer, -table_<name>_learning_rate ...).
*/
typedef struct {
  int n;                        /* number of distinct optimizers */
  TrsSparseOptimizerArgs *args; /* [n] the optimizers; the trainer sets step and seed */
  /* [tables] index into args, as in TrsTbeTable.optimizer; NULL: every table uses args[0] */
  int *of_table;
  float *max_gradient; /* [tables] limit on gradients; 0: no clamping; NULL: no table is clamped */
} TrsSparseOptimizers;

/*
  TrsSparseOptimizersFromOptions - Read trs_sparse_optimizer_options and every table's own keys, and
    reject meaningless settings.

  Not collective.

  In:     tables      the tables whose options are read
  Out:    optimizers  free with TrsSparseOptimizersFree()
  Errors: OPTION for shampoo, for a weight decay with sgd or adagrad, and for modes that only FBGEMM
          has
*/
PetscErrorCode TrsSparseOptimizersFromOptions(TrsOptions options, const TrsTableConfigs *tables,
                                              TrsSparseOptimizers *optimizers);
PetscErrorCode TrsSparseOptimizersFree(TrsSparseOptimizers *optimizers);

/*
  Before training begins, reject an optimizer that the device's kernels do not support. Not
  collective, because the result is the same on all ranks. Errors: UNAVAILABLE
*/
PetscErrorCode TrsSparseOptimizersCheck(const TrsSparseOptimizers *optimizers, const TrsComputeOps *compute);

/* Read only the kind of a table's optimizer, without further checks. Not collective. */
PetscErrorCode TrsSparseOptimizerKindOf(TrsOptions options, const char *table, TrsSparseOptimizerKind *kind);

/* The optimizer of a table. The result is borrowed. */
const TrsSparseOptimizerArgs *TrsSparseOptimizersOf(const TrsSparseOptimizers *optimizers, int table);

/*
  List the states that an optimizer keeps for a table. *n is their number, at most
  TRS_OPTIMIZER_STATES. They have the order of TrsTbeTable.state, and names as in a checkpoint
  ("momentum1", "exp_avg", "exp_avg_sq"). rowwise[i] is true if state i has one number per row, and
  false if it has one per element. Not collective.
*/
void TrsSparseOptimizerStates(TrsSparseOptimizerKind kind, int *n, const char *names[TRS_OPTIMIZER_STATES],
                              PetscBool rowwise[TRS_OPTIMIZER_STATES]);

/*
  Compute the bytes of a shard's states. of_rows counts the states with one number per row,
  of_elements the others.
*/
void TrsSparseOptimizerStateBytes(TrsSparseOptimizerKind kind, int64_t rows, int64_t cols, double *of_rows,
                                  double *of_elements);

/* The optimizer's name in options, such as "rowwise_adagrad". */
const char *TrsSparseOptimizerName(TrsSparseOptimizerKind kind);

/*
  True if the optimizer updates a row as a whole. Then the update of a column shard differs from the
  update of the same columns in the whole table (src/RULES.md, rule A12).
*/
PetscBool TrsSparseOptimizerCouplesColumns(TrsSparseOptimizerKind kind);

/* True if the optimizer needs only one number from the whole row: the sum of squared gradients. */
PetscBool TrsSparseOptimizerNeedsSquaresAlone(const TrsSparseOptimizerArgs *args);
