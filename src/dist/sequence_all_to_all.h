/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchange of sequence embeddings: one row for each id goes back where the id came from. Source: TorchRec
  SequenceEmbeddingsAllToAll.

  rows here are in the order of the send KJT of a TrsKjtExchange (destination, feature, sample) on the
  samples' rank, and [source][feature][sample] on the owner's rank.
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsSequenceAllToAllImpl *TrsSequenceAllToAll;

/* dim: columns, equal on all ranks. Not collective. */
PetscErrorCode TrsSequenceAllToAllCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                         TrsSequenceAllToAll *dist);
PetscErrorCode TrsSequenceAllToAllDestroy(TrsSequenceAllToAll *dist);

/*
  Start: rows [sum of ids received, dim] grouped by source; received_ids, sent_ids [size] ids this rank got
  from and sent to each rank. Wait: rows for the ids this rank sent, [sum of sent_ids, dim] in send order.
  Backward reversed: GradBuffer [sum of sent_ids, dim], beside what Wait gave, which stays; GradWait puts the
  gradients where Start's rows were.
*/
PetscErrorCode TrsSequenceAllToAllStart(TrsSequenceAllToAll dist, TrsStream stream, float *rows,
                                        const int64_t *received_ids, const int64_t *sent_ids);
PetscErrorCode TrsSequenceAllToAllWait(TrsSequenceAllToAll dist, TrsStream stream, const float **rows);
PetscErrorCode TrsSequenceAllToAllGradBuffer(TrsSequenceAllToAll dist, float **send);
PetscErrorCode TrsSequenceAllToAllGradStart(TrsSequenceAllToAll dist, TrsStream stream);
PetscErrorCode TrsSequenceAllToAllGradWait(TrsSequenceAllToAll dist, TrsStream stream, const float **grad);
