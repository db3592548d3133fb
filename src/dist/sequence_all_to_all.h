/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchange of sequence embeddings: one row for each id returns to the rank that sent the id. On the
  samples' rank rows are in the order of a TrsKjtExchange's send KJT (destination, feature, sample).
  On the owner's rank they are [source][feature][sample].

  Source: TorchRec SequenceEmbeddingsAllToAll
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsSequenceAllToAllImpl *TrsSequenceAllToAll;

/* Create the exchange. dim is the number of columns, equal on all ranks. Not collective. */
PetscErrorCode TrsSequenceAllToAllCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                         TrsSequenceAllToAll *dist);
PetscErrorCode TrsSequenceAllToAllDestroy(TrsSequenceAllToAll *dist);

/*
  Start sends rows [sum of received_ids, dim], grouped by source. received_ids and sent_ids [size]
  are the numbers of ids that this rank received from and sent to each rank. Wait returns the rows
  of the ids that this rank sent, [sum of sent_ids, dim] in send order.

  The backward goes the other way. GradBuffer is [sum of sent_ids, dim]; Wait's result stays
  unchanged. GradWait writes the gradients over Start's rows.

  Arrive may be called instead of Wait: it sets block [size] to each rank's rows, in the same order.
  They stay valid until Release, which must be the next call.
*/
PetscErrorCode TrsSequenceAllToAllStart(TrsSequenceAllToAll dist, TrsStream stream, float *rows,
                                        const int64_t *received_ids, const int64_t *sent_ids);
PetscErrorCode TrsSequenceAllToAllWait(TrsSequenceAllToAll dist, TrsStream stream, const float **rows);
PetscErrorCode TrsSequenceAllToAllArrive(TrsSequenceAllToAll dist, TrsStream stream, const float **block);
PetscErrorCode TrsSequenceAllToAllRelease(TrsSequenceAllToAll dist, TrsStream stream);
PetscErrorCode TrsSequenceAllToAllGradBuffer(TrsSequenceAllToAll dist, float **send);
PetscErrorCode TrsSequenceAllToAllGradStart(TrsSequenceAllToAll dist, TrsStream stream);
PetscErrorCode TrsSequenceAllToAllGradWait(TrsSequenceAllToAll dist, TrsStream stream, const float **grad);
