/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Every rank gets all ranks' pooled rows; backward: each row's gradients are summed over the ranks. Source:
  TorchRec PooledEmbeddingsAllGather, all_gather_base_pooled.

  Life and borrowing as in pooled_all_to_all.h; codecs as for sums (rule A23).
*/
#pragma once

#include "dist/coded_exchange.h"

typedef struct TrsPooledAllGatherImpl *TrsPooledAllGather;

/* dim: columns, equal on all ranks. Not collective. */
PetscErrorCode TrsPooledAllGatherCreate(TrsComm comm, int64_t dim, const TrsPooledDistOptions *options,
                                        TrsPooledAllGather *dist);
PetscErrorCode TrsPooledAllGatherDestroy(TrsPooledAllGather *dist);

/*
  Start: local [rows[rank], dim]; rows [size] equal on all ranks. Wait: [sum of rows, dim] in rank order.
  Backward: GradBuffer [sum of rows, dim] in; GradWait gives [rows[rank], dim], summed in rank order.
  Collective on comm.
*/
PetscErrorCode TrsPooledAllGatherStart(TrsPooledAllGather dist, TrsStream stream, const float *local,
                                       const int64_t *rows);
PetscErrorCode TrsPooledAllGatherWait(TrsPooledAllGather dist, TrsStream stream, const float **gathered);
PetscErrorCode TrsPooledAllGatherGradBuffer(TrsPooledAllGather dist, float **send);
PetscErrorCode TrsPooledAllGatherGradStart(TrsPooledAllGather dist, TrsStream stream);
PetscErrorCode TrsPooledAllGatherGradWait(TrsPooledAllGather dist, TrsStream stream, const float **grad);
