/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sum of the dense gradients over ranks, in buckets that travel while the backward goes on.

  The flat gradient array is cut into consecutive buckets in the order in which gradients become ready; a bucket starts when its
  last element is there. Every rank cuts alike and starts in the same order, so ranks without samples take part.
  -dense_allreduce_precision: what travels, as TrsCommAllreduce() encodes it.
  Source: torch.nn.parallel.DistributedDataParallel (Li et al., VLDB 2020), bucket_cap_mb and its small first bucket;
          fp16_compress_hook, bf16_compress_hook, which TorchRec's DefaultDataParallelWrapper takes for allreduce_comm_precision
*/
#pragma once

#include "comm/comm.h"

typedef struct TrsDenseAllreduceImpl *TrsDenseAllreduce;

extern const TrsOptionGroup trs_dense_allreduce_options;

/* Sum grads [n] over comm's ranks. comm and grads are borrowed until Destroy; nothing else may use comm in between. */
PetscErrorCode TrsDenseAllreduceCreate(TrsComm comm, TrsStream stream, float *grads, int64_t n,
                                       TrsDenseAllreduce *allreduce);

/* Read -dense_bucket_bytes, -dense_allreduce_precision. */
PetscErrorCode TrsDenseAllreduceSetFromOptions(TrsDenseAllreduce allreduce, TrsOptions options);

/* Cut into buckets; all allocation is here. */
PetscErrorCode TrsDenseAllreduceSetUp(TrsDenseAllreduce allreduce);

/*
  TrsDenseAllreduceReady - Gradients [begin, end) are complete: start each bucket that is now whole; a model's gradient-ready callback.

  Logically collective: ranges come in the same order on all ranks, each begins where the last one ended, the first of a step at 0.

  In:     ctx  a TrsDenseAllreduce
*/
PetscErrorCode TrsDenseAllreduceReady(void *ctx, int64_t begin, int64_t end);

/* Complete all buckets of this step: grads hold the sums. Collective. Errors: INTERNAL if ranges are missing */
PetscErrorCode TrsDenseAllreduceWait(TrsDenseAllreduce allreduce, TrsStream stream);

PetscErrorCode TrsDenseAllreduceDestroy(TrsDenseAllreduce *allreduce);
