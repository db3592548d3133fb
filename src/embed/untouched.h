/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The bags of a batch that the update of the batch before it does not touch.

  A bag is untouched if the update changes none of its rows. Its pooled row may then be computed
  before this update, with the same bits as after it.

  Source: the idea of TorchRec's prefetched embeddings (PEC), for whole bags
*/
#pragma once

#include "compute/tbe.h"
#include "core/error.h"

typedef struct TrsUntouchedImpl *TrsUntouched;

/*
  Create the marks of the tables' rows: a bit for each row of each table. `tbe` is borrowed. Not
  collective.
*/
PetscErrorCode TrsUntouchedCreate(const TrsTbe *tbe, TrsUntouched *untouched);
PetscErrorCode TrsUntouchedDestroy(TrsUntouched *untouched);

/*
  TrsUntouchedFind - Find the untouched bags of a batch.

  Not collective. The host must be able to read the ids.

  In:  written  the batch whose update follows; it changes the rows of these ids. All features of a
                table count, so a bag is compared with the ids of every feature of its table
       next     the batch after it
  Out: bags     [features * next->batch] in the order of the bags: true if the bag is untouched. A
                bag without rows is untouched
*/
PetscErrorCode TrsUntouchedFind(TrsUntouched untouched, const TrsTbeInput *written, const TrsTbeInput *next,
                                uint8_t *bags);
