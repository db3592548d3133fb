/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Exchange of pooled embeddings, forward and backward. An object does one exchange at a time: Start
  and Wait, then GradStart and GradWait. If the codec is not fp32, data is encoded while it travels.

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
  From the next Start on, gradients overwrite rows in the memory in which this rank reads the rows.
  The codecs must be fp32. Not collective, but either all ranks must call this function, or none.
*/
void TrsPooledAllToAllSetInPlace(TrsPooledAllToAll dist);

/*
  TrsPooledAllToAllStart, TrsPooledAllToAllWait - Send pooled rows to the samples' ranks.

  Start sends pooled [G, dims[rank]] without gaps. The rows are grouped by the rank of their
  samples, in rank order; rank q has source_batch[q] rows. The rows are sent without a copy, and
  belong to the dist until Wait. Their memory must stay valid until GradWait, which writes the
  gradients to it.

  Wait returns a block from each owner: recv + block_displs[q] is [B, dims[q]] without gaps. The
  blocks are borrowed until GradBuffer or the next Start.

  Collective on comm.
*/
PetscErrorCode TrsPooledAllToAllStart(TrsPooledAllToAll dist, TrsStream stream, float *pooled,
                                      const int64_t *source_batch);
PetscErrorCode TrsPooledAllToAllWait(TrsPooledAllToAll dist, TrsStream stream, const float **recv,
                                     const int64_t **block_displs);

/*
  Let the next Start skip ranks: skipped [size], TrsRoundTripSkip(). Arrive must be called after it.
  Not collective.
*/
void TrsPooledAllToAllSkip(TrsPooledAllToAll dist, const PetscBool *skipped);

/*
  TrsPooledAllToAllArrive, TrsPooledAllToAllRelease - Call these functions instead of Wait to read
    blocks in their senders' memory if possible: block[q] is [B, dims[q]].

  The blocks are borrowed until Release, which should follow soon. Collective on comm.

  After SetInPlace, the blocks may be overwritten. When they have the gradients, call Return instead
  of Release to begin the backward, and then GradWait. A forward without a backward ends with
  Release.
*/
PetscErrorCode TrsPooledAllToAllArrive(TrsPooledAllToAll dist, TrsStream stream, const float **block);
PetscErrorCode TrsPooledAllToAllRelease(TrsPooledAllToAll dist, TrsStream stream);
PetscErrorCode TrsPooledAllToAllReturn(TrsPooledAllToAll dist, TrsStream stream);

/*
  Do the backward. The caller must write the gradient to GradBuffer's memory, in the blocks of Wait
  ([B, dims[q]] at block_displs[q]). The dist owns this memory, which also has the result of Wait.
  GradWait writes grad [G, dims[rank]] to the memory of `pooled`, with rows in the order of the
  forward.
*/
PetscErrorCode TrsPooledAllToAllGradBuffer(TrsPooledAllToAll dist, float **send,
                                           const int64_t **block_displs);

/*
  Return the address to which this rank's own block [B, dims[rank]] must be written, so that it need
  not be sent. Returns NULL if the block must be written among the other blocks. Must be called
  after GradBuffer.
*/
float *TrsPooledAllToAllOwnGrad(TrsPooledAllToAll dist);

PetscErrorCode TrsPooledAllToAllGradStart(TrsPooledAllToAll dist, TrsStream stream);
PetscErrorCode TrsPooledAllToAllGradWait(TrsPooledAllToAll dist, TrsStream stream, const float **grad);
