/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The update of -reproducible: rows are updated as if their table were not cut by columns.

  An optimizer that takes a row as a whole (row-wise statistics, norms) would see in a column shard a table of its own (rule A12). Here the
  ranks that hold the columns of a row exchange what was touched, weights, states and summed gradients, each updates the whole row with the
  unsplit table's kernel, and keeps its columns: the same bits however the columns are cut, and equal row-wise states in all shards.
  All shards of a table get the same ids, so both sides of an exchange know which rows they have in common, and in which order.

  Cost: for such tables alone, D * (2 + element-wise states) floats for each touched row to each of its other column blocks, and the whole
  row's update in each. Host memory only. Internal to shard/.
*/
#pragma once

#include "shard/sharding.h"

/* After the group's setup, which made its lookup. Not collective. */
PetscErrorCode TrsWholeRowsCreate(TrsSharding sharding, TrsWholeRows *whole);
PetscErrorCode TrsWholeRowsDestroy(TrsWholeRows *whole);

/* As TrsLookupBackward(). Collective on the world when a table of the group is cut and the optimizer couples columns. */
PetscErrorCode TrsWholeRowsUpdate(TrsWholeRows whole, TrsStream stream, const TrsKjt *kjt, const float *grad,
                                  int64_t stride, const TrsSparseOptimizerArgs *args);
