/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tables that id_map qr splits into two parts. The pooled vectors of all tables arrive in this
  module's matrix. The model's vectors are made from them. For a split table, the vectors of both
  parts are added or multiplied. For other tables, the vectors are copied. The backward does the
  reverse.

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

  In:     model  [features] first column of each feature in the model's matrix; a remainder table
                 has the columns of its quotient table. Borrowed
  Out:    split  NULL if no table is split
*/
PetscErrorCode TrsSplitTablesCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                    const TrsTableConfigs *tables, const int64_t *model,
                                    TrsSplitTables *split);
PetscErrorCode TrsSplitTablesDestroy(TrsSplitTables *split);

/* Get the features' first columns in this module's matrix [features], borrowed. */
const int64_t *TrsSplitTablesColumns(TrsSplitTables split);

/*
  Get memory for the pooled vectors of n samples, borrowed. It is valid until the next call. Not
  collective.
*/
PetscErrorCode TrsSplitTablesRows(TrsSplitTables split, int64_t n, TrsPooledMatrix *arrived);

/* Compute the model's vectors for n samples from the vectors that arrived. Not collective. */
PetscErrorCode TrsSplitTablesForward(TrsSplitTables split, TrsStream stream, int64_t n,
                                     const TrsPooledMatrix *model);

/*
  Compute the gradients of the vectors that arrived from the gradients of the model's vectors. The
  gradients overwrite the vectors. Not collective.
*/
PetscErrorCode TrsSplitTablesBackward(TrsSplitTables split, TrsStream stream, int64_t n,
                                      const TrsPooledMatrix *model, TrsPooledMatrix *arrived);
