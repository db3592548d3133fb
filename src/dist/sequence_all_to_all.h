/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchange of sequence embeddings: a row for each id is sent to the rank that sent the id. On the
  samples' rank, rows are in the order of the KJT that a TrsKjtExchange sends (destination, feature,
  sample). On the owner's rank, the order is [source][feature][sample].

  Source: TorchRec SequenceEmbeddingsAllToAll
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsSequenceAllToAllImpl *TrsSequenceAllToAll;

/*
  Create the exchange. dim is the number of columns, which is equal on all ranks. Not collective.
*/
PetscErrorCode TrsSequenceAllToAllCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                         TrsSequenceAllToAll *dist);
PetscErrorCode TrsSequenceAllToAllDestroy(TrsSequenceAllToAll *dist);

/*
  Do an exchange. received_ids [size] and sent_ids [size] are the numbers of ids that this rank
  received from each rank and sent to each rank. Start sends rows [sum of received_ids, dim],
  grouped by the rank that sent their ids. Wait returns the rows of the ids that this rank sent,
  [sum of sent_ids, dim], in the order in which it sent them.

  The backward sends gradients in the opposite direction. GradBuffer is [sum of sent_ids, dim]; the
  result of Wait stays unchanged. GradWait overwrites the rows of Start with their gradients.

  Arrive may be called instead of Wait. It sets block [size] to the addresses of each rank's rows,
  in the same order. The rows stay valid until Release, which must be the next call.
*/
PetscErrorCode TrsSequenceAllToAllStart(TrsSequenceAllToAll dist, TrsStream stream, float *rows,
                                        const int64_t *received_ids, const int64_t *sent_ids);
PetscErrorCode TrsSequenceAllToAllWait(TrsSequenceAllToAll dist, TrsStream stream, const float **rows);
PetscErrorCode TrsSequenceAllToAllArrive(TrsSequenceAllToAll dist, TrsStream stream, const float **block);
PetscErrorCode TrsSequenceAllToAllRelease(TrsSequenceAllToAll dist, TrsStream stream);
PetscErrorCode TrsSequenceAllToAllGradBuffer(TrsSequenceAllToAll dist, float **send);
PetscErrorCode TrsSequenceAllToAllGradStart(TrsSequenceAllToAll dist, TrsStream stream);
PetscErrorCode TrsSequenceAllToAllGradWait(TrsSequenceAllToAll dist, TrsStream stream, const float **grad);
