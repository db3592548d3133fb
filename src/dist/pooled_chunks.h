/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pooled rows in chunks, one a rank: a reduce-scatter gives each rank the sum of all ranks' rows for its
  chunk; its backward, an all-gather, gives every rank the gradients of all chunks.
  Source: TorchRec PooledEmbeddingsReduceScatter (torchrec.distributed.dist_data);
  reduce_scatter_v_pooled (comm_ops).

  Life and borrowing are as in pooled_all_to_all.h; codecs are those for sums in both directions
  (src/RULES.md, rule A23). Sums are made in rank order.
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsPooledChunksImpl *TrsPooledChunks;

/* dim: columns, equal on all ranks. Every rank holds partial sums of all samples. Not collective. */
PetscErrorCode TrsPooledReduceScatterCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                            TrsPooledChunks *dist);
PetscErrorCode TrsPooledChunksDestroy(TrsPooledChunks *dist);

/*
  chunk_rows [size] equal on all ranks. Start takes [sum of chunk_rows, dim] in rank order and Wait
  gives the own [chunk_rows[rank], dim]; GradBuffer takes the own chunk and GradWait gives all.
  Collective on comm.
*/
PetscErrorCode TrsPooledChunksStart(TrsPooledChunks dist, TrsStream stream, float *rows,
                                    const int64_t *chunk_rows);
PetscErrorCode TrsPooledChunksWait(TrsPooledChunks dist, TrsStream stream, const float **rows);
PetscErrorCode TrsPooledChunksGradBuffer(TrsPooledChunks dist, float **send);
PetscErrorCode TrsPooledChunksGradStart(TrsPooledChunks dist, TrsStream stream);
PetscErrorCode TrsPooledChunksGradWait(TrsPooledChunks dist, TrsStream stream, const float **grad);
