/* SPDX-License-Identifier: BSD-3-Clause */
#include "sparse/kjt.h"

static PetscErrorCode reserve(const TrsDeviceOps *device, TrsKjt *kjt, int64_t n_bags, int64_t n_values,
                              PetscBool weighted)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(device, &kjt->lengths, n_bags * (int64_t)sizeof(int32_t)));
  PetscCall(TrsDeviceBufferReserve(device, &kjt->offsets, (n_bags + 1) * (int64_t)sizeof(int64_t)));
  PetscCall(TrsDeviceBufferReserve(device, &kjt->values, n_values * (int64_t)sizeof(int64_t)));
  if (weighted) PetscCall(TrsDeviceBufferReserve(device, &kjt->weights, n_values * (int64_t)sizeof(float)));
  kjt->is_weighted = weighted;
  kjt->jagged = (TrsJagged){.n_bags = n_bags,
                            .n_values = n_values,
                            .lengths = (int32_t *)kjt->lengths.data,
                            .offsets = (int64_t *)kjt->offsets.data,
                            .values = (int64_t *)kjt->values.data,
                            .weights = weighted ? (float *)kjt->weights.data : NULL};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtReserve(const TrsDeviceOps *device, TrsKjt *kjt, int n_features, int64_t batch,
                             int64_t n_values, PetscBool weighted)
{
  PetscFunctionBegin;
  PetscCall(reserve(device, kjt, n_features * batch, n_values, weighted));
  kjt->n_features = n_features;
  kjt->batch = batch;
  kjt->strides = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtReserveVariable(const TrsDeviceOps *device, TrsKjt *kjt, int n_features,
                                     const int64_t *strides, int64_t n_values, PetscBool weighted)
{
  int64_t n_bags = 0;

  PetscFunctionBegin;
  for (int f = 0; f < n_features; f++) n_bags += strides[f];
  PetscCall(reserve(device, kjt, n_bags, n_values, weighted));
  kjt->n_features = n_features;
  kjt->batch = TRS_KJT_VARIABLE;
  kjt->strides = strides;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtFree(const TrsDeviceOps *device, TrsKjt *kjt)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferFree(device, &kjt->lengths));
  PetscCall(TrsDeviceBufferFree(device, &kjt->offsets));
  PetscCall(TrsDeviceBufferFree(device, &kjt->values));
  PetscCall(TrsDeviceBufferFree(device, &kjt->weights));
  PetscCall(TrsBufferFree(&kjt->scratch));
  *kjt = (TrsKjt){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtOffsets(const TrsComputeOps *compute, TrsStream stream, TrsKjt *kjt)
{
  PetscFunctionBegin;
  PetscCall(compute->offsets(stream, kjt->jagged.n_bags, kjt->jagged.lengths, kjt->jagged.offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where each feature's bags and ids begin, on the host: [n_features + 1] each. */
static PetscErrorCode read_limits(const TrsDeviceOps *device, TrsStream stream, const TrsKjt *kjt,
                                  int64_t *bag_begin, int64_t *id_begin)
{
  int64_t bag = 0;

  PetscFunctionBegin;
  for (int f = 0; f <= kjt->n_features; f++) {
    bag_begin[f] = bag;
    if (device->host_memory) {
      id_begin[f] = kjt->jagged.offsets[bag];
    } else {
      PetscCall(device->copy(&id_begin[f], kjt->jagged.offsets + bag, (int64_t)sizeof(*id_begin), stream));
    }
    if (f < kjt->n_features) bag += TrsKjtStride(kjt, f);
  }
  if (!device->host_memory) PetscCall(device->stream_synchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtPermute(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                             TrsWorkspace workspace, const TrsKjt *in, int n_out, const int *indices,
                             TrsKjt *out)
{
  int64_t *id_begin, *bag_begin, *strides, n_values = 0;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&out->scratch, (2 * (in->n_features + 1) + n_out) * (int64_t)sizeof(int64_t),
                             PETSC_FALSE));
  id_begin = (int64_t *)out->scratch.data;
  bag_begin = id_begin + in->n_features + 1;
  strides = bag_begin + in->n_features + 1;
  PetscCall(read_limits(device, stream, in, bag_begin, id_begin));
  for (int j = 0; j < n_out; j++) {
    PetscCheck(indices[j] >= 0 && indices[j] < in->n_features, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "feature %d of a batch with %d", indices[j], in->n_features);
    strides[j] = TrsKjtStride(in, indices[j]);
    n_values += id_begin[indices[j] + 1] - id_begin[indices[j]];
  }
  if (in->strides) {
    PetscCall(TrsKjtReserveVariable(device, out, n_out, strides, n_values, in->is_weighted));
  } else {
    PetscCall(TrsKjtReserve(device, out, n_out, in->batch, n_values, in->is_weighted));
  }
  PetscCall(compute->permute_blocks(stream, workspace, in->n_features, bag_begin, n_out, indices, &in->jagged,
                                    &out->jagged));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtView(const TrsKjt *kjt, int begin, int n, TrsKjt *view)
{
  int64_t bag_begin = 0, n_bags = 0;

  PetscFunctionBegin;
  PetscCheck(begin >= 0 && n >= 0 && begin + n <= kjt->n_features, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "features %d to %d of a batch with %d", begin, begin + n, kjt->n_features);
  for (int f = 0; f < begin; f++) bag_begin += TrsKjtStride(kjt, f);
  for (int f = begin; f < begin + n; f++) n_bags += TrsKjtStride(kjt, f);
  *view = (TrsKjt){
      .n_features = n, .batch = kjt->batch, .is_weighted = kjt->is_weighted, .jagged = kjt->jagged};
  view->strides = kjt->strides ? kjt->strides + begin : NULL;
  view->jagged.n_bags = n_bags;
  view->jagged.lengths += bag_begin;
  view->jagged.offsets += bag_begin;
  PetscFunctionReturn(PETSC_SUCCESS);
}
