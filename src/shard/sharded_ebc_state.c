/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/impl.h"

/*
  Functions through which io/ accesses tensors on the device. They wait for the stream that changes
  the tensors.
*/
static PetscErrorCode alloc_stage(const void *ebc, int64_t bytes, void **host)
{
  PetscFunctionBegin;
  PetscCall(((const struct TrsShardedEbcImpl *)ebc)->context.device->alloc_host(bytes, host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_stage(const void *ebc, void **host)
{
  PetscFunctionBegin;
  PetscCall(((const struct TrsShardedEbcImpl *)ebc)->context.device->release_host(host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_stage(const void *ebc, void *to, const void *from, int64_t bytes)
{
  const struct TrsShardedEbcImpl *e = (const struct TrsShardedEbcImpl *)ebc;

  PetscFunctionBegin;
  PetscCall(e->context.device->copy(to, from, bytes, e->state_stream));
  PetscCall(e->context.device->stream_synchronize(e->state_stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Convert the numbers of a checkpoint if the tables have another type. */
static PetscErrorCode convert_numbers(int64_t n, TrsDType from, const void *source, TrsDType to, void *result)
{
  const TrsComputeOps *host;
  float *wide = NULL;

  PetscFunctionBegin;
  PetscCall(TrsComputeFind("cpu", &host));
  /* Convert between the half precisions by way of fp32, which represents both exactly. */
  if (from != TRS_FP32 && to != TRS_FP32) {
    PetscCall(TrsAlloc(n, sizeof(*wide), &wide));
    PetscCall(host->convert(NULL, n, from, source, TRS_FP32, wide));
    from = TRS_FP32;
    source = wide;
  }
  PetscCall(host->convert(NULL, n, from, source, to, result));
  PetscCall(TrsFree(&wide));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Before a file is written, write changed rows from placements such as caches back to their tables.
  (Files are read before the first batch, when the placements are empty.)
*/
static PetscErrorCode settle(const void *ebc)
{
  const struct TrsShardedEbcImpl *e = (const struct TrsShardedEbcImpl *)ebc;

  PetscFunctionBegin;
  if (e->state_after) PetscCall(e->context.device->stream_wait(e->state_stream, e->state_after));
  for (int g = 0; g < e->n_groups; g++)
    PetscCall(TrsLookupSettle(e->group[g]->lookup, e->state_stream, PETSC_FALSE));
  PetscCall(e->context.device->stream_synchronize(e->state_stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsShardedEbcAddState(TrsShardedEbc ebc, TrsStream stream, TrsEvent after, TrsState *state)
{
  PetscFunctionBegin;
  ebc->state_stream = stream;
  ebc->state_after = after;
  state->convert = convert_numbers;
  if (!ebc->context.device->host_memory)
    state->memory = (TrsStateMemory){
        .context = ebc, .alloc = alloc_stage, .release = release_stage, .copy = copy_stage};
  if (TrsShardedEbcIsPlaced(ebc)) {
    state->settle = settle;
    state->settle_context = ebc;
  }
  PetscCall(TrsEmbeddingShardsAddState(ebc->context.shards, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}
