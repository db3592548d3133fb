/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The rows that layers pool (such as sequence_pooling gru). Each feature with a layer has a matrix
  with a row for every id of the batch, and another matrix for the rows' gradients. The sharded
  tables write the rows and read the gradients (by_id of TrsPooledMatrix). The model uses both as
  bags.

  With -reproducible the rows are then sent to the ranks of their samples' blocks (sample_blocks.h),
  and the gradients are sent back:

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
  Create the matrices.

  In:  device, compute  borrowed
       training         true: there are gradients
  Out: ragged           NULL if no table has a layer

  Not collective.
*/
PetscErrorCode TrsRaggedRowsCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                   const TrsTableConfigs *tables, PetscBool training, TrsRaggedRows *ragged);
PetscErrorCode TrsRaggedRowsDestroy(TrsRaggedRows *ragged);

/*
  Provide memory for the rows of this rank's samples in a batch. `batch` has features in the model's
  order, with offsets. On a device whose memory the host cannot read, it also has lengths and
  id_begin. `ragged` may be NULL. Not collective.
*/
PetscErrorCode TrsRaggedRowsBegin(TrsRaggedRows ragged, TrsStream stream, const TrsKjt *batch);

/*
  Get the matrices [features] of the rows or of their gradients. An entry is NULL for a feature
  without a layer. The array is valid until Destroy. TrsRaggedRowsBegin() changes its entries.
*/
float *const *TrsRaggedRowsById(TrsRaggedRows ragged, PetscBool gradients);

/*
  Get the bags of this rank's samples, for TrsDlrmSetBags(). Borrowed. Returns NULL if `ragged` is
  NULL.
*/
const TrsBagRows *TrsRaggedRowsBags(TrsRaggedRows ragged);

/*
  ToBlocks sends the rows of this rank's samples to the ranks of their blocks, and receives the rows
  of the n samples in this rank's blocks. FromBlocks sends the gradients back. Collective on the
  blocks' communicator.
*/
PetscErrorCode TrsRaggedRowsToBlocks(TrsRaggedRows ragged, TrsSampleBlocks blocks, TrsStream stream,
                                     int64_t n);
PetscErrorCode TrsRaggedRowsFromBlocks(TrsRaggedRows ragged, TrsSampleBlocks blocks, TrsStream stream);

/*
  Get the bags of n samples in this rank's blocks, from sample `begin` on. Borrowed until the next
  call.
*/
const TrsBagRows *TrsRaggedRowsOfBlock(TrsRaggedRows ragged, int64_t begin, int64_t n);
