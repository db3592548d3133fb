/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pooled rows in chunks, one per rank. A reduce-scatter gives each rank the sum of all ranks' rows
  for its chunk. The backward, an all-gather, gives every rank the gradients of all chunks.

  The exchange is flat, between all ranks at once, or hierarchical. A hierarchical exchange has two
  levels, with H hosts of L ranks each, so that only H - 1 chunks of a rank leave its host instead
  of (H - 1) L:

    [L][H] chunks of all ranks, by place in their hosts, then host
    --reduce-scatter inside the host--> [H] sums of this host, for the ranks with my place
    --reduce-scatter between the ranks with my place--> my chunk

  Object life and borrowing are as in pooled_all_to_all.h. Both directions use the codecs for sums
  (src/RULES.md, rule A23); in a hierarchical exchange, data inside a host is not encoded. Sums are
  made in rank order; in a hierarchical exchange first inside each host, then over the hosts.

  Source: TorchRec PooledEmbeddingsReduceScatter (torchrec.distributed.dist_data);
          reduce_scatter_v_pooled (comm_ops); two levels as in TwRwPooledEmbeddingDist
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsPooledChunksImpl *TrsPooledChunks;

/*
  Create a flat exchange. dim is the number of columns, equal on all ranks. Every rank holds partial
  sums of all samples. Not collective.
*/
PetscErrorCode TrsPooledReduceScatterCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                            TrsPooledChunks *dist);

/*
  Create a hierarchical exchange. host joins a host's ranks, and cross joins the ranks with the same
  place in their hosts (TrsCommGroups). Not collective.
*/
PetscErrorCode TrsPooledHierarchicalCreate(TrsComm host, TrsComm cross, int64_t dim,
                                           const TrsPooledDistOptions *options, TrsPooledChunks *dist);
PetscErrorCode TrsPooledChunksDestroy(TrsPooledChunks *dist);

/*
  chunk_rows [size] must be equal on all ranks. Start takes [sum of chunk_rows, dim] in rank order,
  and Wait returns this rank's chunk [chunk_rows[rank], dim]. GradBuffer takes the gradients of this
  rank's chunk, and GradWait returns the gradients of all chunks.

  In a hierarchical exchange chunk_rows is [H][L], by rank, but the rows and their gradients are
  [L][H]. Its Start waits for the other ranks of the host, so that the hosts' sums travel while the
  caller works.

  Collective on comm (host and cross).
*/
PetscErrorCode TrsPooledChunksStart(TrsPooledChunks dist, TrsStream stream, float *rows,
                                    const int64_t *chunk_rows);
PetscErrorCode TrsPooledChunksWait(TrsPooledChunks dist, TrsStream stream, const float **rows);
PetscErrorCode TrsPooledChunksGradBuffer(TrsPooledChunks dist, float **send);
PetscErrorCode TrsPooledChunksGradStart(TrsPooledChunks dist, TrsStream stream);
PetscErrorCode TrsPooledChunksGradWait(TrsPooledChunks dist, TrsStream stream, const float **grad);
