/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The input rows of sequence layers (such as sequence_pooling gru): each of their features has a
  matrix with a row for every id of the batch, and another matrix for the gradients. The sharded
  tables write the rows and read the gradients (TrsPooledMatrix, by_id); the model uses both as
  bags.

  With -reproducible the rows travel on to the ranks of their samples' blocks (sample_blocks.h), and
  the gradients come back:

    rows of own samples --all-to-all--> rows of my blocks' samples --layer--> gradients
    --all-to-all--> gradients of own samples' rows

  Internal to train/.
*/
#pragma once

#include "model/dlrm.h"
#include "sparse/kjt.h"
#include "train/sample_blocks.h"

typedef struct TrsRaggedRowsImpl *TrsRaggedRows;

/*
  In: device, compute  borrowed
      training  true: there are gradients
  Out: ragged   NULL if no table has a layer
  Not collective.
*/
PetscErrorCode TrsRaggedRowsCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                   const TrsTableConfigs *tables, PetscBool training, TrsRaggedRows *ragged);
PetscErrorCode TrsRaggedRowsDestroy(TrsRaggedRows *ragged);

/*
  Make room for the rows of a batch's own samples. batch: features in model order, with offsets; on
  a device whose memory the host cannot read, with lengths and id_begin. ragged may be NULL. Not
  collective.
*/
PetscErrorCode TrsRaggedRowsBegin(TrsRaggedRows ragged, TrsStream stream, const TrsKjt *batch);

/*
  Get the matrices [features] of the rows or of their gradients, NULL for a feature without a layer.
  The array stays valid until Destroy; TrsRaggedRowsBegin() changes its entries.
*/
float *const *TrsRaggedRowsById(TrsRaggedRows ragged, PetscBool gradients);

/* Get the bags of own samples, for TrsDlrmSetBags(). Returns NULL if ragged is NULL. Borrowed. */
const TrsBagRows *TrsRaggedRowsBags(TrsRaggedRows ragged);

/*
  Send own samples' rows to the n samples in this rank's blocks, and bring these samples' gradients
  back. Collective on the blocks' communicator.
*/
PetscErrorCode TrsRaggedRowsToBlocks(TrsRaggedRows ragged, TrsSampleBlocks blocks, TrsStream stream,
                                     int64_t n);
PetscErrorCode TrsRaggedRowsFromBlocks(TrsRaggedRows ragged, TrsSampleBlocks blocks, TrsStream stream);

/*
  Get the bags of n samples in this rank's blocks, from sample `begin` on. Borrowed until the next
  call.
*/
const TrsBagRows *TrsRaggedRowsOfBlock(TrsRaggedRows ragged, int64_t begin, int64_t n);
