/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/dense_allreduce.h"

#include <inttypes.h>

#define FIRST_BUCKET_BYTES (1 << 20) /* small, so that the exchange starts early */

/* On a device, each exchange costs host time, so there are fewer and larger buckets. */
#define BUCKET_BYTES        (2 << 20)
#define DEVICE_BUCKET_BYTES (16 << 20)

struct TrsDenseAllreduceImpl {
  TrsComm comm;
  TrsStream stream;
  float *grads;
  int64_t n;
  int64_t bucket_bytes;
  TrsCodec codec; /* the codec that encodes messages */
  int n_buckets, n_started;
  int64_t *begin;      /* [n_buckets + 1] index of each bucket's first element */
  TrsRequest *request; /* [n_buckets] */
  int64_t n_ready;     /* number of elements that are complete in this step */
};

static const TrsOptionSpec specs[] = {
    {"-dense_bucket_bytes", TRS_OPTION_BYTES, NULL, "[4,]", NULL, "bytes",
     "size of the buckets in which dense gradients are summed over ranks during the backward. The first "
     "one has at most 1 MiB; default: 2MiB, and 16MiB with -comm_backend nccl"},
    {"-dense_allreduce_order", TRS_OPTION_ENUM, "rank", NULL, "rank,any", NULL,
     "order in which dense gradients of the ranks are added. mpi adds in rank order anyway. rank: the "
     "order of the ranks. any: nccl uses its own all-reduce, which is faster in large jobs, and whose "
     "bits depend on the ranks' places in the network; only with -dense_allreduce_precision fp32, and not "
     "with -reproducible or -accumulate_steps"},
    {"-dense_allreduce_precision", TRS_OPTION_ENUM, "fp32", NULL, "fp32,fp16,bf16", NULL,
     "precision of dense gradients between ranks; fp16 and bf16 halve the bytes. Each rank rounds its "
     "gradients, they are added in fp32 in rank order, and the sum is rounded, with the same bits on all "
     "ranks. fp16 clamps to +-65504. DDP's fp16 and bf16 hooks add in that precision and divide the "
     "rounded numbers by the number of ranks. Here the loss is already divided by the global batch, so "
     "gradients are small before they are rounded. With one rank, nothing is rounded"},
};
const TrsOptionGroup trs_dense_allreduce_options = TRS_OPTION_GROUP("Dense gradients", specs);

PetscErrorCode TrsDenseAllreduceCreate(TrsComm comm, TrsStream stream, float *grads, int64_t n,
                                       TrsDenseAllreduce *allreduce)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(allreduce));
  (*allreduce)->comm = comm;
  (*allreduce)->stream = stream;
  (*allreduce)->grads = grads;
  (*allreduce)->n = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseAllreduceSetFromOptions(TrsDenseAllreduce allreduce, TrsOptions options)
{
  int kind = 0, order = 0;

  PetscFunctionBegin;
  allreduce->bucket_bytes = allreduce->comm->ops->by_device ? DEVICE_BUCKET_BYTES : BUCKET_BYTES;
  PetscCall(TrsOptionsGetInt(options, "-dense_bucket_bytes", &allreduce->bucket_bytes, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-dense_allreduce_precision", &kind, NULL));
  PetscCall(TrsOptionsGetEnum(options, "-dense_allreduce_order", &order, NULL));
  if (order && kind != TRS_CODEC_FP32)
    PetscCall(TrsOptionError(options, "-dense_allreduce_order",
                             "any order goes with -dense_allreduce_precision fp32 alone"));
  allreduce->comm->any_order = (PetscBool)order;
  allreduce->codec = (TrsCodec){.kind = (TrsCodecKind)kind, .backward = 1, .loss_scale = 1.0F};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseAllreduceSetUp(TrsDenseAllreduce allreduce)
{
  const int64_t size = allreduce->bucket_bytes / (int64_t)sizeof(float),
                limit = FIRST_BUCKET_BYTES / (int64_t)sizeof(float);
  const int64_t first = size < limit ? size : limit;
  const int64_t rest = allreduce->n > first ? allreduce->n - first : 0;

  PetscFunctionBegin;
  allreduce->n_buckets = (int)(1 + (rest + size - 1) / size);
  PetscCall(PetscMalloc1((size_t)allreduce->n_buckets + 1, &allreduce->begin));
  PetscCall(PetscCalloc1((size_t)allreduce->n_buckets, &allreduce->request));
  allreduce->begin[0] = 0;
  for (int b = 1; b < allreduce->n_buckets; b++) allreduce->begin[b] = first + (b - 1) * size;
  allreduce->begin[allreduce->n_buckets] = allreduce->n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsDenseAllreduceStarts(TrsDenseAllreduce allreduce, int64_t end)
{
  return (PetscBool)(allreduce->comm->size > 1 && allreduce->n_started < allreduce->n_buckets &&
                     allreduce->begin[allreduce->n_started + 1] <= end);
}

PetscErrorCode TrsDenseAllreduceReady(void *ctx, int64_t begin, int64_t end)
{
  TrsDenseAllreduce allreduce = ctx;

  PetscFunctionBegin;
  PetscCheck(begin == allreduce->n_ready && end <= allreduce->n, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "gradients [%" PRId64 ", %" PRId64 ") are ready, expected from %" PRId64 " on", begin, end,
             allreduce->n_ready);
  allreduce->n_ready = end;
  while (allreduce->n_started < allreduce->n_buckets && allreduce->begin[allreduce->n_started + 1] <= end) {
    const int b = allreduce->n_started++;

    PetscCall(TrsCommAllreduce(allreduce->comm, allreduce->stream, &allreduce->codec,
                               allreduce->grads + allreduce->begin[b],
                               allreduce->begin[b + 1] - allreduce->begin[b], &allreduce->request[b]));
  }
  PetscCall(TrsCommProgress(allreduce->comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseAllreduceWait(TrsDenseAllreduce allreduce, TrsStream stream)
{
  PetscFunctionBegin;
  PetscCheck(allreduce->n_ready == allreduce->n, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "only %" PRId64 " of %" PRId64 " gradients are ready", allreduce->n_ready, allreduce->n);
  for (int b = 0; b < allreduce->n_buckets; b++) PetscCall(TrsRequestWait(&allreduce->request[b], stream));
  allreduce->n_started = 0;
  allreduce->n_ready = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseAllreduceDestroy(TrsDenseAllreduce *allreduce)
{
  PetscFunctionBegin;
  if (!*allreduce) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscFree((*allreduce)->begin));
  PetscCall(PetscFree((*allreduce)->request));
  PetscCall(PetscFree(*allreduce));
  PetscFunctionReturn(PETSC_SUCCESS);
}
