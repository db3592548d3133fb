/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tables that id_map qr splits in two. The pooled vectors of all tables arrive in a matrix of this
  module. They become the vectors that the model takes: those of a split table's two parts are added
  or multiplied, those of other tables are copied. The backward goes the other way.

  Source: Shi et al. 2020, "Compositional Embeddings Using Complementary Partitions for
          Memory-Efficient Recommendation Systems"; the DLRM reference's QREmbeddingBag
*/
#pragma once

#include "compute/compute_ops.h"
#include "shard/route.h"
#include "spec/table_config.h"

typedef struct TrsSplitTablesImpl *TrsSplitTables;

/*
  TrsSplitTablesCreate - Lay out the matrix in which pooled vectors arrive.

  Not collective.

  In:     model  [features] columns of the features in the model's matrix; a remainder has those of
                 its quotient. Borrowed
  Out:    split  NULL if no table is split
*/
PetscErrorCode TrsSplitTablesCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                    const TrsTableConfigs *tables, const int64_t *model,
                                    TrsSplitTables *split);
PetscErrorCode TrsSplitTablesDestroy(TrsSplitTables *split);

/* Columns of the features in the matrix [features], borrowed. */
const int64_t *TrsSplitTablesColumns(TrsSplitTables split);

/*
  Room for the pooled vectors of n samples, borrowed. They stay until the next call. Not collective.
*/
PetscErrorCode TrsSplitTablesRows(TrsSplitTables split, int64_t n, TrsPooledMatrix *arrived);

/* Make the model's vectors of n samples from those that arrived. Not collective. */
PetscErrorCode TrsSplitTablesForward(TrsSplitTables split, TrsStream stream, int64_t n,
                                     const TrsPooledMatrix *model);

/*
  Make the gradients of the vectors that arrived, from those of the model's. They take the vectors'
  places. Not collective.
*/
PetscErrorCode TrsSplitTablesBackward(TrsSplitTables split, TrsStream stream, int64_t n,
                                      const TrsPooledMatrix *model, TrsPooledMatrix *arrived);
