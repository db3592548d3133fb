/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The embedding tables' optimizer as configured: its numbers, and which states a table keeps. The updates themselves are fused into the
  backward (compute/tbe).
  Source: FBGEMM EmbOptimType, TorchRec fused optimizer keys; rules A7 to A11
*/
#pragma once

#include "compute/tbe.h"
#include "core/options.h"

#define TRS_SPARSE_MAX_STATES TRS_TBE_STATES

extern const TrsOptionGroup trs_sparse_optimizer_options;

typedef struct {
  TrsSparseOptimizerArgs args; /* step and seed are the trainer's to set */
  float max_gradient;          /* 0: no clamping */
  PetscBool stochastic_rounding;
} TrsSparseOptimizerConfig;

/*
  TrsSparseOptimizerFromOptions - Read trs_sparse_optimizer_options and refuse what has no meaning.

  Not collective.
  Errors: OPTION for shampoo, and for a weight decay with sgd or adagrad
*/
PetscErrorCode TrsSparseOptimizerFromOptions(TrsOptions options, TrsSparseOptimizerConfig *config);

/*
  States of a table: *n of them (at most TRS_SPARSE_MAX_STATES), in the order of TrsTbeTable.state; names as in a checkpoint ("momentum1",
  "exp_avg", "exp_avg_sq"); rowwise[i]: one number a row, else one an element. Not collective.
*/
void TrsSparseOptimizerStates(TrsSparseOptimizerKind kind, int *n, const char *names[TRS_SPARSE_MAX_STATES],
                              PetscBool rowwise[TRS_SPARSE_MAX_STATES]);

/* "rowwise_adagrad" and so on, as in options. */
const char *TrsSparseOptimizerName(TrsSparseOptimizerKind kind);

/* Does it act on a row as a whole, so that a column shard differs from the table (rule A12)? */
PetscBool TrsSparseOptimizerCouplesColumns(TrsSparseOptimizerKind kind);
