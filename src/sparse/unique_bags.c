/* SPDX-License-Identifier: BSD-3-Clause */
#include "sparse/unique_bags.h"

PetscErrorCode TrsUniqueBagsFree(const TrsDeviceOps *device, TrsUniqueBags *bags)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferFree(device, &bags->sample));
  PetscCall(TrsDeviceBufferFree(device, &bags->n));
  PetscCall(TrsDeviceBufferFree(device, &bags->limits));
  *bags = (TrsUniqueBags){.lists = {0}};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsUniqueBagsFind(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, const TrsKjt *batch, int n_features,
                                 const int *feature, TrsUniqueBags *bags, TrsDeviceBuffer *inverse)
{
  const int64_t n_bags = n_features * batch->batch;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(device, &bags->sample, n_bags * (int64_t)sizeof(*bags->lists.sample)));
  PetscCall(TrsDeviceBufferReserve(device, &bags->n, n_features * (int64_t)sizeof(*bags->lists.n)));
  PetscCall(TrsDeviceBufferReserve(device, inverse, n_bags * (int64_t)sizeof(int64_t)));
  bags->lists = (TrsBagLists){
      .batch = batch->batch, .sample = (int32_t *)bags->sample.data, .n = (int64_t *)bags->n.data};
  PetscCall(compute->unique_bags(stream, workspace, n_features, feature, &batch->jagged, &bags->lists,
                                 (int64_t *)inverse->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsUniqueBagsTake(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 TrsWorkspace workspace, TrsUniqueBags *bags, const TrsTakenBags *taken,
                                 TrsPinnedBuffer *limits, TrsKjt *out)
{
  const TrsBagLists *lists = taken->lists;
  const TrsKjt *from = taken->from;
  const int n_out = taken->n;
  const int64_t bytes = (2 * n_out + 1) * (int64_t)sizeof(int64_t);

  PetscFunctionBegin;
  PetscCall(TrsKjtReserve(device, out, n_out, lists->batch, taken->n_values, from->is_weighted));
  if (limits) PetscCall(TrsDeviceBufferReserve(device, &bags->limits, bytes));
  PetscCall(compute->take_bags(stream, workspace, n_out, taken->block, taken->list, lists, &from->jagged,
                               &out->jagged, limits ? (int64_t *)bags->limits.data : NULL));
  if (!limits) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsPinnedBufferReserve(device, limits, bytes));
  PetscCall(device->copy(limits->data, bags->limits.data, bytes, stream));
  out->batch = TRS_KJT_VARIABLE;
  out->strides = (const int64_t *)limits->data;
  out->id_begin = out->strides + n_out;
  out->limits_pending = (PetscBool)!device->host_memory;
  PetscFunctionReturn(PETSC_SUCCESS);
}
