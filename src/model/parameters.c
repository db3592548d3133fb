/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/parameters.h"

#include "core/random/random.h"

#include <string.h>

#define ALIGNMENT 16 /* floats in a cache line */

PetscErrorCode TrsParametersAdd(TrsParameters *params, const char *module, int layer, const char *part,
                                int64_t rows, int64_t cols, TrsParameterInit init, float scale, int *index)
{
  const size_t size = strlen(module) + strlen(part) + sizeof("/-2147483648/");
  char *name;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(size, &name));
  PetscCall(PetscSNPrintf(name, size, "%s/%d/%s", module, layer, part));
  PetscCall(TrsParametersAddNamed(params, name, rows, cols, init, scale, index));
  PetscCall(PetscFree(name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsParametersAddNamed(TrsParameters *params, const char *name, int64_t rows, int64_t cols,
                                     TrsParameterInit init, float scale, int *index)
{
  const int n = params->n;

  PetscFunctionBegin;
  if (n == params->capacity) {
    params->capacity = n ? 2 * n : 16;
    PetscCall(PetscRealloc((size_t)params->capacity * sizeof(*params->param), &params->param));
    PetscCall(PetscRealloc((size_t)params->capacity * sizeof(*params->name), &params->name));
    PetscCall(PetscRealloc((size_t)params->capacity * sizeof(*params->init), &params->init));
    PetscCall(PetscRealloc((size_t)params->capacity * sizeof(*params->scale), &params->scale));
    PetscCall(PetscRealloc((size_t)params->capacity * sizeof(*params->offset), &params->offset));
  }
  params->param[n] = (TrsDenseParameter){
      .rows = rows, .cols = cols ? cols : 1, .stride = cols ? cols : 1, .ndim = cols ? 2 : 1};
  PetscCall(PetscStrallocpy(name, &params->name[n]));
  params->param[n].name = params->name[n];
  params->init[n] = init;
  params->scale[n] = scale;
  params->offset[n] = params->n_values;
  params->n_values += (rows * params->param[n].cols + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  *index = params->n++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsParametersFillUp(TrsParameters *params, int64_t stride)
{
  TrsDenseParameter *last = &params->param[params->n - 1];

  last->stride = stride;
  params->n_values = params->offset[params->n - 1] +
                     (last->rows * stride + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/*
  Make parameter p's initial values on the host. The values fill its matrix without padding, and do
  not depend on the distance between its rows.
*/
static void initialise(const TrsParameters *params, int p, uint64_t seed, float *values)
{
  const TrsDenseParameter *param = &params->param[p];
  const int64_t n = param->rows * param->cols;
  const uint64_t key = TrsNameHash(param->name);
  const float scale = params->scale[p];

  if (params->init[p] == TRS_INIT_UNIFORM)
    TrsRandomUniformFill(seed, TRS_RANDOM_DENSE_INIT, key, 0, n, -scale, scale, values);
  if (params->init[p] == TRS_INIT_NORMAL)
    TrsRandomNormalFill(seed, TRS_RANDOM_DENSE_INIT, key, 0, n, 0.0F, scale, values);
  for (int64_t i = 0; params->init[p] == TRS_INIT_ONE && i < n; i++) values[i] = 1.0F;
  for (int64_t r = param->rows - 1; param->stride > param->cols && r >= 0; r--) {
    memmove(values + r * param->stride, values + r * param->cols, (size_t)param->cols * sizeof(float));
    memset(values + r * param->stride + param->cols, 0,
           (size_t)(param->stride - param->cols) * sizeof(float));
  }
}

PetscErrorCode TrsParametersAllocate(TrsParameters *params, const TrsDeviceOps *device, uint64_t seed)
{
  const int64_t bytes = params->n_values * (int64_t)sizeof(float);
  TrsBuffer host = {0};

  PetscFunctionBegin;
  /* alloc() also zeroes the memory, as for the gradients */
  PetscCall(device->alloc(bytes, (void **)&params->values));
  if (params->type != TRS_FP32)
    PetscCall(device->alloc(params->n_values * TrsDTypeBytes(params->type), &params->operands));
  if (!params->forward_only) /* shared, because other ranks read the gradients */
    PetscCall(TrsDeviceAllocShared(device, bytes, (void **)&params->grads));
  for (int p = 0; p < params->n; p++) {
    TrsDenseParameter *param = &params->param[p];
    const int64_t n_bytes = param->rows * param->stride * (int64_t)sizeof(float);

    param->value = params->values + params->offset[p];
    param->grad = params->grads ? params->grads + params->offset[p] : NULL;
    if (params->init[p] == TRS_INIT_ZERO) continue;
    if (device->host_memory) {
      initialise(params, p, seed, param->value);
      continue;
    }
    PetscCall(TrsBufferReserve(&host, n_bytes, PETSC_FALSE));
    initialise(params, p, seed, host.data);
    PetscCall(device->copy(param->value, host.data, n_bytes, NULL));
    /* the next parameter's values use the same host memory */
    PetscCall(device->stream_synchronize(NULL));
  }
  PetscCall(TrsBufferFree(&host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsParametersRefresh(TrsParameters *params, const TrsComputeOps *compute, TrsStream stream)
{
  PetscFunctionBegin;
  if (params->operands)
    PetscCall(
        compute->convert(stream, params->n_values, TRS_FP32, params->values, params->type, params->operands));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const void *TrsParametersVector(const TrsParameters *params, int index, TrsDType type)
{
  if (type == TRS_FP32) return params->param[index].value;
  return (const char *)params->operands + params->offset[index] * TrsDTypeBytes(type);
}

TrsMatrix TrsParametersMatrix(const TrsParameters *params, int index)
{
  TrsMatrix matrix = TrsFloats(params->param[index].value, params->param[index].stride);

  if (params->operands) {
    matrix.type = params->type;
    matrix.data = (char *)params->operands + params->offset[index] * TrsDTypeBytes(params->type);
  }
  return matrix;
}

PetscErrorCode TrsParametersReady(TrsParameters *params, int index)
{
  const int64_t end = index + 1 < params->n ? params->offset[index + 1] : params->n_values;
  const int64_t begin = params->n_ready;

  PetscFunctionBegin;
  params->n_ready = end;
  if (params->ready) PetscCall(params->ready(params->ready_ctx, begin, end));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsParametersBetween(const TrsParameters *params)
{
  PetscFunctionBegin;
  if (params->between) PetscCall(params->between(params->between_ctx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsParametersFree(TrsParameters *params, const TrsDeviceOps *device)
{
  PetscFunctionBegin;
  for (int p = 0; p < params->n; p++) PetscCall(PetscFree(params->name[p]));
  PetscCall(PetscFree(params->name));
  PetscCall(PetscFree(params->param));
  PetscCall(PetscFree(params->init));
  PetscCall(PetscFree(params->scale));
  PetscCall(PetscFree(params->offset));
  PetscCall(device->release((void **)&params->values));
  PetscCall(device->release((void **)&params->grads));
  PetscCall(device->release(&params->operands));
  *params = (TrsParameters){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}
