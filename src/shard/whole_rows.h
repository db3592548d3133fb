/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The update of -reproducible: rows are updated as if their table were not cut by columns.

  An optimizer that takes a row as a whole (row-wise statistics, norms) would see in a column shard a table of its own (src/RULES.md, rule A12). Here the
  ranks that hold the columns of a row exchange what was touched, weights, states and summed gradients, each updates the whole row with the
  unsplit table's kernel, and keeps its columns: the same bits however the columns are cut, and equal row-wise states in all shards.
  All shards of a table get the same ids, so both sides of an exchange know which rows they have in common, and in which order. A batch's rows
  are listed when its ids have come, so that nobody waits for their numbers in the update.

  Cost: in a group with such a table, D * (2 + element-wise states) elements for each touched row to each of its other column blocks, and the whole
  row's update in each; a list of all its tables' touched rows and their gradients, each sorted for. Internal to shard/.
*/
#pragma once

#include "shard/sharding.h"

/* After the group's setup, which made its lookup. NULL where no table of the group is cut so that it matters, on any rank. Not collective. */
PetscErrorCode TrsWholeRowsCreate(TrsSharding sharding, TrsWholeRows *whole);
PetscErrorCode TrsWholeRowsDestroy(TrsWholeRows *whole);

/* The rows that the training slot's batch touches, once its ids are here. On a device the host waits for their numbers. Not collective. */
PetscErrorCode TrsWholeRowsList(TrsWholeRows whole, const TrsShardingSlot *slot, TrsStream stream);

/* As TrsLookupBackward(), of a batch whose rows are listed. Collective on the world. */
PetscErrorCode TrsWholeRowsUpdate(TrsWholeRows whole, const TrsShardingSlot *slot, TrsStream stream,
                                  const float *grad, int64_t stride, const TrsSparseOptimizerArgs *args);
