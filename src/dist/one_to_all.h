/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Inference with one rank's batch: its ids go to all ranks, looked-up rows come back to it. Source: TorchRec
  KJTOneToAll, EmbeddingsAllToOne, EmbeddingsAllToOneReduce (torchrec.distributed.dist_data).

  These are the exchanges of training with empty batches on all ranks but the root, so one set of messages
  serves both. Forward only.
*/
#pragma once

#include "dist/kjt_all_to_all.h"
#include "dist/pooled_all_to_all.h"

typedef struct TrsOneToAllImpl *TrsOneToAll;

/* Arguments as for TrsKjtExchangeCreate(). Not collective. */
PetscErrorCode TrsOneToAllCreate(TrsComm comm, int root, const int *n_features, int n_local,
                                 PetscBool is_weighted, TrsOneToAll *dist);
PetscErrorCode TrsOneToAllDestroy(TrsOneToAll *dist);

/*
  Start: batch, on the root, has the features in destination order (row_wise: buckets), offsets filled;
  borrowed until Wait; ignored elsewhere. Wait: recv has this rank's features for all of the root's samples;
  batch is the root's B on every rank. Collective on comm.
*/
PetscErrorCode TrsOneToAllStart(TrsOneToAll dist, TrsStream stream, const TrsKjt *batch);
PetscErrorCode TrsOneToAllWait(TrsOneToAll dist, TrsStream stream, TrsKjt *recv);

typedef struct TrsAllToOneImpl *TrsAllToOne;

/* dims [comm->size]: columns of every rank's rows. forward: the codec on the wire. Not collective. */
PetscErrorCode TrsAllToOneCreate(TrsComm comm, int root, const int64_t *dims, const TrsCodec *forward,
                                 TrsAllToOne *dist);
/* The same for partial sums of dim columns, which are added in rank order. */
PetscErrorCode TrsAllToOneReduceCreate(TrsComm comm, int root, int64_t dim, const TrsCodec *forward,
                                       TrsAllToOne *dist);
PetscErrorCode TrsAllToOneDestroy(TrsAllToOne *dist);

/*
  Start: pooled [batch, dims[rank]] of the root's samples, sent straight from its place. Wait: on the root,
  [batch, dims[q]] of owner q at recv + block_displs[q] (a sum: [batch, dim] at recv, block_displs NULL);
  elsewhere nothing. Borrowed until the next Start; of one rank it may be pooled itself. Collective on comm.
*/
PetscErrorCode TrsAllToOneStart(TrsAllToOne dist, TrsStream stream, float *pooled, int64_t batch);
PetscErrorCode TrsAllToOneWait(TrsAllToOne dist, TrsStream stream, const float **recv,
                               const int64_t **block_displs);
