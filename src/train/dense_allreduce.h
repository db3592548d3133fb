/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Sum of the dense gradients over ranks, in buckets that are sent during the rest of the backward.

  The flat gradient array is cut into consecutive buckets in the order in which gradients become
  ready. The exchange of a bucket starts when its last element is ready. Every rank has the same
  buckets and starts them in the same order, so ranks without samples also take part. Messages have
  the precision -dense_allreduce_precision (TrsCommAllreduce()).

  Source: torch.nn.parallel.DistributedDataParallel (Li et al., VLDB 2020), bucket_cap_mb and its
          small first bucket; fp16_compress_hook, bf16_compress_hook, which TorchRec's
          DefaultDataParallelWrapper uses for allreduce_comm_precision
*/
#pragma once

#include "comm/comm.h"

typedef struct TrsDenseAllreduceImpl *TrsDenseAllreduce;

extern const TrsOptionGroup trs_dense_allreduce_options;

/*
  Create the sum of grads [n] over comm's ranks. comm and grads are borrowed until
  TrsDenseAllreduceDestroy(). Until then nothing else may use comm.
*/
PetscErrorCode TrsDenseAllreduceCreate(TrsComm comm, TrsStream stream, float *grads, int64_t n,
                                       TrsDenseAllreduce *allreduce);

/* Read -dense_bucket_bytes and -dense_allreduce_precision. */
PetscErrorCode TrsDenseAllreduceSetFromOptions(TrsDenseAllreduce allreduce, TrsOptions options);

/* Cut the gradients into buckets. All memory is allocated here. */
PetscErrorCode TrsDenseAllreduceSetUp(TrsDenseAllreduce allreduce);

/*
  TrsDenseAllreduceReady - Report that gradients [begin, end) are complete, and start each bucket
    that is now complete.

  This is the model's callback for complete gradients. Logically collective: ranges must come in the
  same order on all ranks. Each range must begin where the last one ended. The first range of a step
  must begin at 0.

  In:     ctx  a TrsDenseAllreduce
*/
PetscErrorCode TrsDenseAllreduceReady(void *ctx, int64_t begin, int64_t end);

/*
  True if the exchange of a bucket starts when the gradients [0, end) are complete. With one rank
  nothing is exchanged.
*/
PetscBool TrsDenseAllreduceStarts(TrsDenseAllreduce allreduce, int64_t end);

/*
  Wait for all buckets of this step. `grads` then holds the sums. Collective. Errors: INTERNAL if
  ranges are missing.
*/
PetscErrorCode TrsDenseAllreduceWait(TrsDenseAllreduce allreduce, TrsStream stream);

PetscErrorCode TrsDenseAllreduceDestroy(TrsDenseAllreduce *allreduce);
