/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pooled rows in chunks, one chunk for each rank. In the forward, a reduce-scatter, each rank
  receives its chunk of the sum of all ranks' rows. In the backward, an all-gather, every rank
  receives the gradients of all chunks.

  An exchange is either flat, between all ranks, or hierarchical. A hierarchical exchange between H
  hosts of L ranks each has two levels. So a rank sends only H - 1 chunks to other hosts, instead of
  (H - 1) L:

    [L][H] chunks of all ranks, by index in their hosts, then host
    --reduce-scatter inside the host--> [H] sums of this host, for the ranks with my index
    --reduce-scatter between the ranks with my index--> my chunk

  Objects are created, lent and freed as in pooled_all_to_all.h. Both directions use the codecs for
  sums (src/RULES.md, rule A23). In a hierarchical exchange, data inside a host is not encoded. Sums
  are added in rank order; in a hierarchical exchange, first inside each host, then over the hosts.

  Source: TorchRec PooledEmbeddingsReduceScatter (torchrec.distributed.dist_data);
          reduce_scatter_v_pooled (comm_ops); two levels as in TwRwPooledEmbeddingDist
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsPooledChunksImpl *TrsPooledChunks;

/*
  Create a flat exchange. dim is the number of columns, which is equal on all ranks. Every rank has
  partial sums of all samples. Not collective.
*/
PetscErrorCode TrsPooledReduceScatterCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                            TrsPooledChunks *dist);

/*
  Create a hierarchical exchange. `host` has the ranks of one host, and `cross` has the ranks with
  the same index in their hosts (TrsCommGroups). Not collective.
*/
PetscErrorCode TrsPooledHierarchicalCreate(TrsComm host, TrsComm cross, int64_t dim,
                                           const TrsPooledDistOptions *options, TrsPooledChunks *dist);
PetscErrorCode TrsPooledChunksDestroy(TrsPooledChunks *dist);

/*
  Do an exchange. chunk_rows [size] has the number of rows in each rank's chunk, and must be equal
  on all ranks. Start sends `rows` [sum of chunk_rows, dim], in rank order. Wait returns this rank's
  chunk [chunk_rows[rank], dim]. The caller must write the gradients of this chunk to the memory of
  GradBuffer. GradWait returns the gradients of all chunks.

  In a hierarchical exchange, chunk_rows is in rank order, [H][L], but the chunks of the rows and
  their gradients are in the order [L][H]. Start then waits for the other ranks of the host, so that
  the hosts' sums travel while the caller works.

  Collective on comm (host and cross).
*/
PetscErrorCode TrsPooledChunksStart(TrsPooledChunks dist, TrsStream stream, float *rows,
                                    const int64_t *chunk_rows);
PetscErrorCode TrsPooledChunksWait(TrsPooledChunks dist, TrsStream stream, const float **rows);
PetscErrorCode TrsPooledChunksGradBuffer(TrsPooledChunks dist, float **send);
PetscErrorCode TrsPooledChunksGradStart(TrsPooledChunks dist, TrsStream stream);
PetscErrorCode TrsPooledChunksGradWait(TrsPooledChunks dist, TrsStream stream, const float **grad);
