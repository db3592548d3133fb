/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sum of the dense gradients over ranks, in buckets that travel during the rest of the backward.

  The flat gradient array is cut into consecutive buckets in the order in which gradients become
  ready. A bucket starts when its last element is ready. Every rank cuts the same buckets and starts
  them in the same order, so ranks without samples take part. -dense_allreduce_precision is the
  message's precision, as TrsCommAllreduce() encodes it.

  Source: torch.nn.parallel.DistributedDataParallel (Li et al., VLDB 2020), bucket_cap_mb and its
          small first bucket; fp16_compress_hook, bf16_compress_hook, which TorchRec's
          DefaultDataParallelWrapper uses for allreduce_comm_precision
*/
#pragma once

#include "comm/comm.h"

typedef struct TrsDenseAllreduceImpl *TrsDenseAllreduce;

extern const TrsOptionGroup trs_dense_allreduce_options;

/*
  Sum grads [n] over comm's ranks. comm and grads are borrowed until TrsDenseAllreduceDestroy().
  Nothing else may use comm in between.
*/
PetscErrorCode TrsDenseAllreduceCreate(TrsComm comm, TrsStream stream, float *grads, int64_t n,
                                       TrsDenseAllreduce *allreduce);

/* Read -dense_bucket_bytes and -dense_allreduce_precision. */
PetscErrorCode TrsDenseAllreduceSetFromOptions(TrsDenseAllreduce allreduce, TrsOptions options);

/* Cut the gradients into buckets. All memory is allocated here. */
PetscErrorCode TrsDenseAllreduceSetUp(TrsDenseAllreduce allreduce);

/*
  TrsDenseAllreduceReady - Start each bucket that is complete now that gradients [begin, end) are
  complete.

  The model's gradient-ready callback. Logically collective: ranges must come in the same order on
  all ranks. Each range must begin where the last one ended. The first range of a step must begin at
  0.

  In:     ctx  a TrsDenseAllreduce
*/
PetscErrorCode TrsDenseAllreduceReady(void *ctx, int64_t begin, int64_t end);

/*
  True if a bucket starts to travel once the gradients [0, end) are complete. With one rank nothing
  travels.
*/
PetscBool TrsDenseAllreduceStarts(TrsDenseAllreduce allreduce, int64_t end);

/*
  Complete all buckets of this step. grads then holds the sums. Collective. Errors: INTERNAL if
  ranges are missing.
*/
PetscErrorCode TrsDenseAllreduceWait(TrsDenseAllreduce allreduce, TrsStream stream);

PetscErrorCode TrsDenseAllreduceDestroy(TrsDenseAllreduce *allreduce);
