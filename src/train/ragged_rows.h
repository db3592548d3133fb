/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The rows that the layers of sequences take (sequence_pooling gru and its like): for each such
  feature a matrix with a row for every id of the batch, and the gradients in another one. The
  sharded tables write the rows and read the gradients (TrsPooledMatrix, by_id); the model takes
  both as bags.

  With -reproducible the rows go on to the ranks of their samples' blocks (sample_blocks.h), and the
  gradients come back:

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
      training  whether there are gradients
  Out: ragged   NULL if no table has a layer
  Not collective.
*/
PetscErrorCode TrsRaggedRowsCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                   const TrsTableConfigs *tables, PetscBool training, TrsRaggedRows *ragged);
PetscErrorCode TrsRaggedRowsDestroy(TrsRaggedRows *ragged);

/*
  Make room for the rows of a batch's own samples. batch: features in the model's order, with
  offsets; on a device that the host cannot read, with lengths and id_begin. Accepts NULL for
  ragged. Not collective.
*/
PetscErrorCode TrsRaggedRowsBegin(TrsRaggedRows ragged, TrsStream stream, const TrsKjt *batch);

/*
  The matrices [features] of the rows and of their gradients, NULL for a feature without a layer.
  The array stays until Destroy; its entries change in TrsRaggedRowsBegin().
*/
float *const *TrsRaggedRowsById(TrsRaggedRows ragged, PetscBool gradients);

/* The bags of own samples, as TrsDlrmSetBags() takes them. NULL for NULL. Borrowed. */
const TrsBagRows *TrsRaggedRowsBags(TrsRaggedRows ragged);

/*
  Send own samples' rows to the n samples of this rank's blocks, and bring the gradients of these
  back. Collective on the communicator of the blocks.
*/
PetscErrorCode TrsRaggedRowsToBlocks(TrsRaggedRows ragged, TrsSampleBlocks blocks, TrsStream stream,
                                     int64_t n);
PetscErrorCode TrsRaggedRowsFromBlocks(TrsRaggedRows ragged, TrsSampleBlocks blocks, TrsStream stream);

/* The bags of n samples of this rank's blocks from `begin` on. Borrowed until the next call. */
const TrsBagRows *TrsRaggedRowsOfBlock(TrsRaggedRows ragged, int64_t begin, int64_t n);
