/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchange of pooled embeddings, forward and backward. Each object serves one exchange at a time:
  Start..., Wait..., then the backward pair. Data is encoded on the wire if the codec is not fp32.

  Source: TorchRec PooledEmbeddingsAllToAll (torchrec.distributed.dist_data); alltoall_pooled
          (comm_ops)
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsPooledAllToAllImpl *TrsPooledAllToAll;

/*
  Create the exchange. dims [comm->size] is the number of columns of each rank's pooled tensor: the
  sum of D over the rank's features. Not collective.
*/
PetscErrorCode TrsPooledAllToAllCreate(TrsComm comm, const int64_t *dims, const TrsPooledDistOptions *options,
                                       TrsPooledAllToAll *dist);
PetscErrorCode TrsPooledAllToAllDestroy(TrsPooledAllToAll *dist);

/*
  From the next Start on, gradients overwrite rows in the memory where the rows have arrived. There
  must be no codec. Not collective: all ranks must call it, or none.
*/
void TrsPooledAllToAllSetInPlace(TrsPooledAllToAll dist);

/*
  TrsPooledAllToAllStart, TrsPooledAllToAllWait - Send pooled rows to the samples' ranks.

  Start sends pooled [G, dims[rank]], contiguous, with rows grouped by source rank, in rank order,
  source_batch [size] rows each. The rows are sent without a copy, and belong to the dist until
  Wait. The memory must stay valid until GradWait, which writes the gradients there.

  Wait returns one block per owner: recv + block_displs[q] is [B, dims[q]], contiguous. The blocks
  are borrowed until GradBuffer or the next Start.

  Collective on comm.
*/
PetscErrorCode TrsPooledAllToAllStart(TrsPooledAllToAll dist, TrsStream stream, float *pooled,
                                      const int64_t *source_batch);
PetscErrorCode TrsPooledAllToAllWait(TrsPooledAllToAll dist, TrsStream stream, const float **recv,
                                     const int64_t **block_displs);

/*
  TrsPooledAllToAllArrive, TrsPooledAllToAllRelease - Use these instead of Wait to read blocks where
  they lie: block[q] is [B, dims[q]].

  The blocks are borrowed until Release, which should follow soon. Collective on comm.

  In place the blocks may be written. A backward begins with Return instead of Release, once the
  blocks hold the gradients; GradWait follows. A forward without a backward ends with Release.
*/
PetscErrorCode TrsPooledAllToAllArrive(TrsPooledAllToAll dist, TrsStream stream, const float **block);
PetscErrorCode TrsPooledAllToAllRelease(TrsPooledAllToAll dist, TrsStream stream);
PetscErrorCode TrsPooledAllToAllReturn(TrsPooledAllToAll dist, TrsStream stream);

/*
  Backward. The caller writes the gradient to GradBuffer's memory, in the blocks of Wait ([B,
  dims[q]] at block_displs[q]). The dist owns this memory, and Wait's result lies in it. GradWait
  returns grad [G, dims[rank]] in the memory of `pooled`, with rows as in the forward.
*/
PetscErrorCode TrsPooledAllToAllGradBuffer(TrsPooledAllToAll dist, float **send,
                                           const int64_t **block_displs);

/*
  Call it after GradBuffer. Returns the address to which this rank's own block [B, dims[rank]] must
  be written so that it need not travel. NULL: write the block among the others.
*/
float *TrsPooledAllToAllOwnGrad(TrsPooledAllToAll dist);

PetscErrorCode TrsPooledAllToAllGradStart(TrsPooledAllToAll dist, TrsStream stream);
PetscErrorCode TrsPooledAllToAllGradWait(TrsPooledAllToAll dist, TrsStream stream, const float **grad);
