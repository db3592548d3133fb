/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pooled rows in chunks, one a rank: reduce-scatter gives each rank the sum of all ranks' rows for its chunk, all-gather gives every rank all
  chunks; each is the other's backward. Source: TorchRec PooledEmbeddingsReduceScatter, PooledEmbeddingsAllGather
  (torchrec.distributed.dist_data); reduce_scatter_v_pooled, all_gather_base_pooled (comm_ops).

  Life, borrowing and division as in pooled_all_to_all.h; codecs as for sums (rule A23), either way. Sums are made in rank order.
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsPooledChunksImpl *TrsPooledChunks;

/* dim: columns, equal on all ranks. Forward: sums (row-wise: every rank holds partial sums of all samples), or all rows. Not collective. */
PetscErrorCode TrsPooledReduceScatterCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                            TrsPooledChunks *dist);
PetscErrorCode TrsPooledAllGatherCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                        TrsPooledChunks *dist);
PetscErrorCode TrsPooledChunksDestroy(TrsPooledChunks *dist);

/*
  chunk_rows [size] equal on all ranks; all: [sum of chunk_rows, dim] in rank order, own: [chunk_rows[rank], dim]. Reduce-scatter: Start all,
  Wait gives own; GradBuffer own, GradWait gives all. All-gather: the other way round. Collective on comm.
*/
PetscErrorCode TrsPooledChunksStart(TrsPooledChunks dist, TrsStream stream, float *rows,
                                    const int64_t *chunk_rows);
PetscErrorCode TrsPooledChunksWait(TrsPooledChunks dist, TrsStream stream, const float **rows);
PetscErrorCode TrsPooledChunksGradBuffer(TrsPooledChunks dist, float **send);
PetscErrorCode TrsPooledChunksGradStart(TrsPooledChunks dist, TrsStream stream);
PetscErrorCode TrsPooledChunksGradWait(TrsPooledChunks dist, TrsStream stream, const float **grad);
