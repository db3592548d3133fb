/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchange of pooled embeddings, forward and backward. Source: TorchRec PooledEmbeddingsAllToAll
  (torchrec.distributed.dist_data); alltoall_pooled (comm_ops).

  Each object serves one exchange at a time: Start..., Wait..., then the backward pair. The data is encoded
  on the wire when the codec is not fp32.
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsPooledAllToAllImpl *TrsPooledAllToAll;

/*
  In: dims [comm->size]: columns every rank's pooled tensor has (sum of D over its local features). Not
  collective.
*/
PetscErrorCode TrsPooledAllToAllCreate(TrsComm comm, const int64_t *dims, const TrsPooledDistOptions *options,
                                       TrsPooledAllToAll *dist);
PetscErrorCode TrsPooledAllToAllDestroy(TrsPooledAllToAll *dist);

/*
  Start: pooled [G, dims[rank]] (rows grouped by source rank, in rank order; source_batch [size] rows each;
  contiguous) goes back to the samples' ranks. Wait: received blocks, one an owner: recv + block_displs[q] is
  [B, dims[q]] contiguous; borrowed until GradBuffer or the next Start. Collective on comm. pooled is sent straight
  from its place and belongs to the dist until Wait; it must stay until GradWait, which puts the gradients there.
*/
PetscErrorCode TrsPooledAllToAllStart(TrsPooledAllToAll dist, TrsStream stream, float *pooled,
                                      const int64_t *source_batch);
PetscErrorCode TrsPooledAllToAllWait(TrsPooledAllToAll dist, TrsStream stream, const float **recv,
                                     const int64_t **block_displs);

/* Instead of Wait: where the blocks lie, block[q] [B, dims[q]]; borrowed until Release, which is to follow soon. Collective on comm. */
PetscErrorCode TrsPooledAllToAllArrive(TrsPooledAllToAll dist, TrsStream stream, const float **block);
PetscErrorCode TrsPooledAllToAllRelease(TrsPooledAllToAll dist, TrsStream stream);

/*
  Backward. Buffer: where the caller writes the gradient, the same blocks ([B, dims[q]] at block_displs[q]);
  owned by the dist, where what Wait gave was. Wait: grad [G, dims[rank]], rows as in the forward, in the memory of
  `pooled`.
*/
PetscErrorCode TrsPooledAllToAllGradBuffer(TrsPooledAllToAll dist, float **send,
                                           const int64_t **block_displs);

/* After GradBuffer: where the own block is to be written then, [B, dims[rank]], so that it need not travel; or NULL: among the others. */
float *TrsPooledAllToAllOwnGrad(TrsPooledAllToAll dist);

PetscErrorCode TrsPooledAllToAllGradStart(TrsPooledAllToAll dist, TrsStream stream);
PetscErrorCode TrsPooledAllToAllGradWait(TrsPooledAllToAll dist, TrsStream stream, const float **grad);
