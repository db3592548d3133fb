/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tables that id_map qr splits in two. The pooled vectors of all tables arrive in this module's
  matrix. The model's vectors are made from them: the vectors of a split table's two parts are added
  or multiplied, the other tables' are copied. The backward does the reverse.

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

  In:     model  [features] columns of the features in the model's matrix; a remainder has its
                 quotient's columns. Borrowed
  Out:    split  NULL if no table is split
*/
PetscErrorCode TrsSplitTablesCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                    const TrsTableConfigs *tables, const int64_t *model,
                                    TrsSplitTables *split);
PetscErrorCode TrsSplitTablesDestroy(TrsSplitTables *split);

/* The features' columns in the matrix [features], borrowed. */
const int64_t *TrsSplitTablesColumns(TrsSplitTables split);

/*
  Get memory for the pooled vectors of n samples, borrowed. They stay valid until the next call. Not
  collective.
*/
PetscErrorCode TrsSplitTablesRows(TrsSplitTables split, int64_t n, TrsPooledMatrix *arrived);

/* Make the model's vectors for n samples from the vectors that arrived. Not collective. */
PetscErrorCode TrsSplitTablesForward(TrsSplitTables split, TrsStream stream, int64_t n,
                                     const TrsPooledMatrix *model);

/*
  Compute the gradients of the arrived vectors from the gradients of the model's vectors. They
  overwrite the vectors. Not collective.
*/
PetscErrorCode TrsSplitTablesBackward(TrsSplitTables split, TrsStream stream, int64_t n,
                                      const TrsPooledMatrix *model, TrsPooledMatrix *arrived);
