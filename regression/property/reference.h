/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What sharded tables must compute: the tables whole, on one rank, in double, written down from the
  definition (src/RULES.md, rules A7, A12 to A16, A24) with none of the product's kernels.
*/
#pragma once

#include "optim/sparse_optimizer.h"
#include "random_model.h"

/* A table with its optimizer states: [R, D], or [R, n_blocks] for one number a row and column block. */
typedef struct {
  int64_t R;
  int D, n_blocks, n_states;
  int64_t
      *block; /* [n_blocks + 1] first columns of what an optimizer takes for a row: a column shard, or all */
  PetscBool rowwise[TRS_OPTIMIZER_STATES];
  double *weight, *state[TRS_OPTIMIZER_STATES];
  PetscBool *touched;      /* [R] did the last update's batch name the row? */
  PetscBool *undetermined; /* [R * D] the last update's direction is a sign of rounding noise (lion) */
} reference_table;

/* Numbers in a row of state s, of the weights for s < 0. */
int reference_width(const reference_table *table, int s);

/* whole_rows: column shards share a row's statistics (-reproducible). */
PetscErrorCode reference_create(const random_model *model, PetscBool whole_rows, reference_table **tables);
PetscErrorCode reference_destroy(const random_model *model, reference_table **tables);

/* Gradients of the position weights, from the tables before the update: [n_features, MODEL_MAX_BAG], 0 where there are none. */
void reference_position_gradients(const random_model *model, const reference_table *tables,
                                  const random_batch *batch, double *gradients);

/* pooled [G, stride]: the features' columns are written. */
void reference_forward(const random_model *model, const reference_table *tables, const random_batch *batch,
                       double *pooled);

/* step: updates done before. */
PetscErrorCode reference_update(const random_model *model, reference_table *tables, const random_batch *batch,
                                int step);
