/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/model_parallel_impl.h"

#include <string.h>

/*
  The functions by which io/ accesses tensors on the device. They wait for work on the compute
  stream, which changes the tensors.
*/
static PetscErrorCode alloc_stage(const void *model, int64_t bytes, void **host)
{
  PetscFunctionBegin;
  PetscCall(((const struct TrsModelParallelImpl *)model)->config.device->alloc_host(bytes, host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_stage(const void *model, void **host)
{
  PetscFunctionBegin;
  PetscCall(((const struct TrsModelParallelImpl *)model)->config.device->release_host(host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_stage(const void *model, void *to, const void *from, int64_t bytes)
{
  const struct TrsModelParallelImpl *m = (const struct TrsModelParallelImpl *)model;

  PetscFunctionBegin;
  PetscCall(m->config.device->copy(to, from, bytes, m->stream));
  PetscCall(m->config.device->stream_synchronize(m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Convert numbers of a checkpoint whose tables have another type. */
static PetscErrorCode convert_numbers(int64_t n, TrsDType from, const void *source, TrsDType to, void *result)
{
  const TrsComputeOps *host;
  float *wide = NULL;

  PetscFunctionBegin;
  PetscCall(TrsComputeFind("cpu", &host));
  /* Convert from one half precision to the other by way of fp32, which holds both. */
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
  Write rows in caches back to their tables before a file is written. (Files are read before the
  first batch, when the caches are empty.)
*/
static PetscErrorCode settle(const void *model)
{
  const struct TrsModelParallelImpl *m = (const struct TrsModelParallelImpl *)model;

  PetscFunctionBegin;
  PetscCall(m->config.device->stream_wait(m->stream, m->prefetched));
  PetscCall(TrsShardedEbcWriteBack(m->ebc, m->stream));
  PetscCall(m->config.device->stream_synchronize(m->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsModelParallelAddState(TrsModelParallel m, TrsState *state)
{
  PetscFunctionBegin;
  state->convert = convert_numbers;
  if (!m->config.device->host_memory)
    state->memory = (TrsStateMemory){
        .context = m, .alloc = alloc_stage, .release = release_stage, .copy = copy_stage};
  if (m->cached) {
    state->settle = settle;
    state->settle_context = m;
  }
  PetscCall(TrsEmbeddingShardsAddState(&m->shards, state));
  PetscCall(TrsDlrmAddState(m->dlrm, m->averaged, state));
  if (m->dense_optimizer) PetscCall(TrsDlrmAddOptimizerState(m->dlrm, m->dense_optimizer, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool is_average(const TrsStateTensor *tensor)
{
  const char *name = strrchr(tensor->path, '/');

  return (PetscBool)(tensor->optional && name && strcmp(name + 1, TRS_DENSE_AVERAGE) == 0);
}

void TrsModelParallelStateWasRead(TrsModelParallel m, const TrsState *state)
{
  PetscBool all = PETSC_TRUE;

  for (int i = 0; i < state->n; i++)
    if (is_average(&state->tensor[i]) && !state->tensor[i].was_read) all = PETSC_FALSE;
  if (m->dense_optimizer && all) TrsDenseOptimizerContinueAverage(m->dense_optimizer);
}
