/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pooled rows in chunks, one a rank. A reduce-scatter gives each rank the sum of all ranks' rows for
  its chunk. The backward, an all-gather, gives every rank the gradients of all chunks.

  Life and borrowing are as in pooled_all_to_all.h. Both directions use the codecs for sums
  (src/RULES.md, rule A23). Sums are made in rank order.

  Source: TorchRec PooledEmbeddingsReduceScatter (torchrec.distributed.dist_data);
          reduce_scatter_v_pooled (comm_ops)
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsPooledChunksImpl *TrsPooledChunks;

/*
  Create the exchange. dim is the number of columns, equal on all ranks. Every rank holds partial
  sums of all samples. Not collective.
*/
PetscErrorCode TrsPooledReduceScatterCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                            TrsPooledChunks *dist);
PetscErrorCode TrsPooledChunksDestroy(TrsPooledChunks *dist);

/*
  chunk_rows [size] is equal on all ranks. Start takes [sum of chunk_rows, dim] in rank order, and
  Wait gives this rank's chunk [chunk_rows[rank], dim]. GradBuffer takes the gradients of this
  rank's chunk, and GradWait gives those of all chunks. Collective on comm.
*/
PetscErrorCode TrsPooledChunksStart(TrsPooledChunks dist, TrsStream stream, float *rows,
                                    const int64_t *chunk_rows);
PetscErrorCode TrsPooledChunksWait(TrsPooledChunks dist, TrsStream stream, const float **rows);
PetscErrorCode TrsPooledChunksGradBuffer(TrsPooledChunks dist, float **send);
PetscErrorCode TrsPooledChunksGradStart(TrsPooledChunks dist, TrsStream stream);
PetscErrorCode TrsPooledChunksGradWait(TrsPooledChunks dist, TrsStream stream, const float **grad);
