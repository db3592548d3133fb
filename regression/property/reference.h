/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The expected results of sharded tables: whole tables, on one rank, in double, written down from
  the definition (src/RULES.md, rules A7, A12 to A16, A24) without any of the product's kernels.
*/
#pragma once

#include "optim/sparse_optimizer.h"
#include "random_model.h"

/*
  A table with its optimizer states: [R, D], or [R, n_blocks] for one number per row and column
  block.
*/
typedef struct {
  int64_t R;
  int D, n_blocks, n_states;
  int64_t *block; /* [n_blocks + 1] first columns of the parts that an optimizer treats as a row */
  PetscBool rowwise[TRS_OPTIMIZER_STATES];
  double *weight, *state[TRS_OPTIMIZER_STATES];
  PetscBool *touched;      /* [R] the last update's batch contained the row */
  PetscBool *undetermined; /* [R * D] the sign of lion's last update was rounding noise */
} reference_table;

/* Return the numbers in a row of state s; for s < 0, of the weights. */
int reference_width(const reference_table *table, int s);

/* whole_rows: column shards share a row's statistics (-reproducible). */
PetscErrorCode reference_create(const random_model *model, PetscBool whole_rows, reference_table **tables);
PetscErrorCode reference_destroy(const random_model *model, reference_table **tables);

/*
  Compute the gradients of the position weights from the tables before the update: [n_features,
  MODEL_MAX_BAG], 0 for other features and places.
*/
void reference_position_gradients(const random_model *model, const reference_table *tables,
                                  const random_batch *batch, double *gradients);

/* Write the features' columns of pooled [G, stride]. */
void reference_forward(const random_model *model, const reference_table *tables, const random_batch *batch,
                       double *pooled);

/* step: number of earlier updates. */
PetscErrorCode reference_update(const random_model *model, reference_table *tables, const random_batch *batch,
                                int step);
