/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Computes the expected results of sharded tables. It uses whole tables on one rank, in double, and
  the definitions (src/RULES.md, rules A7, A12 to A16, A24), without any of the product's kernels.
*/
#pragma once

#include "optim/sparse_optimizer.h"
#include "random_model.h"

/*
  A table with its optimizer states. A state is [R, D], or [R, n_blocks] if it has one number per
  row and column block.
*/
typedef struct {
  int64_t R;
  int D, n_blocks, n_states;
  /* [n_blocks + 1] first column of each column block that an optimizer treats as a row */
  int64_t *block;
  PetscBool rowwise[TRS_OPTIMIZER_STATES];
  double *weight, *state[TRS_OPTIMIZER_STATES];
  PetscBool *touched; /* [R] true if the last update's batch contained the row */
  /* [R * D] true if the sign in lion's last update was only rounding noise */
  PetscBool *undetermined;
} reference_table;

/*
  Return how many numbers a row of state s has. If s < 0, the function returns how many weights a
  row has.
*/
int reference_width(const reference_table *table, int s);

/* If whole_rows is set, column shards share the statistics of a row (-reproducible). */
PetscErrorCode reference_create(const random_model *model, PetscBool whole_rows, reference_table **tables);
PetscErrorCode reference_destroy(const random_model *model, reference_table **tables);

/*
  Compute the gradients of the position weights from the tables before the update: [n_features,
  MODEL_MAX_BAG], with 0 for other features and positions.
*/
void reference_position_gradients(const random_model *model, const reference_table *tables,
                                  const random_batch *batch, double *gradients);

/* Write the columns of all features in pooled [G, stride]. */
void reference_forward(const random_model *model, const reference_table *tables, const random_batch *batch,
                       double *pooled);

/* step is the number of earlier updates. */
PetscErrorCode reference_update(const random_model *model, reference_table *tables, const random_batch *batch,
                                int step);
