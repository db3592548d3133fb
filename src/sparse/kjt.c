/* SPDX-License-Identifier: BSD-3-Clause */
#include "sparse/kjt.h"

static PetscErrorCode reserve(const TrsDeviceOps *device, TrsKjt *kjt, int64_t n_bags, int64_t n_values,
                              PetscBool weighted)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(device, &kjt->lengths, n_bags * (int64_t)sizeof(int32_t)));
  PetscCall(TrsDeviceBufferReserve(device, &kjt->offsets, (n_bags + 1) * (int64_t)sizeof(int64_t)));
  PetscCall(TrsDeviceBufferReserveShared(device, &kjt->values, n_values * (int64_t)sizeof(int64_t)));
  if (weighted)
    PetscCall(TrsDeviceBufferReserveShared(device, &kjt->weights, n_values * (int64_t)sizeof(float)));
  kjt->is_weighted = weighted;
  kjt->id_begin = NULL;
  kjt->limits_pending = PETSC_FALSE;
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
  PetscCall(TrsDeviceBufferFree(device, &kjt->limits));
  *kjt = (TrsKjt){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtOffsets(const TrsComputeOps *compute, TrsStream stream, TrsKjt *kjt)
{
  PetscFunctionBegin;
  PetscCall(compute->offsets(stream, kjt->jagged.n_bags, kjt->jagged.lengths, kjt->jagged.offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The case of TrsKjtReadLimits() in which only the device can read the offsets. */
static PetscErrorCode copy_limits(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                  const TrsKjt *kjt, TrsDeviceBuffer *limits, int64_t *id_begin)
{
  const int64_t n = kjt->n_features + 1, width = (int64_t)(sizeof(*id_begin) / sizeof(float));
  int64_t bag = 0;

  PetscFunctionBegin;
  /* the limits are at equal distances in the offsets, so they are gathered first */
  if (!kjt->strides) {
    TrsColumnCopy copy = {.from = TrsFloats((const float *)kjt->jagged.offsets, kjt->batch * width),
                          .cols = width};

    PetscCall(TrsDeviceBufferReserve(device, limits, n * (int64_t)sizeof(*id_begin)));
    copy.to = TrsFloats((const float *)limits->data, width);
    PetscCall(compute->copy_columns(stream, n, 1, &copy));
    PetscCall(device->copy(id_begin, limits->data, n * (int64_t)sizeof(*id_begin), stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int f = 0; f < n; f++) {
    PetscCall(device->copy(&id_begin[f], kjt->jagged.offsets + bag, (int64_t)sizeof(*id_begin), stream));
    if (f < kjt->n_features) bag += TrsKjtStride(kjt, f);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtReadLimits(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                const TrsKjt *kjt, TrsDeviceBuffer *limits, int64_t *id_begin,
                                PetscBool *pending)
{
  int64_t bag = 0;

  PetscFunctionBegin;
  if (!kjt->id_begin && !device->host_memory) {
    *pending = PETSC_TRUE;
    PetscCall(copy_limits(device, compute, stream, kjt, limits, id_begin));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int f = 0; f <= kjt->n_features; f++) {
    id_begin[f] = kjt->id_begin ? kjt->id_begin[f] : kjt->jagged.offsets[bag];
    if (f < kjt->n_features) bag += TrsKjtStride(kjt, f);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtPermute(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                             TrsWorkspace workspace, const TrsKjt *in, int n_out, const int *indices,
                             TrsKjt *out)
{
  int64_t *id_begin, *bag_begin, *strides, *out_begin;
  PetscBool pending = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(
      &out->scratch, (2 * (in->n_features + 1) + 2 * n_out + 1) * (int64_t)sizeof(int64_t), PETSC_FALSE));
  id_begin = (int64_t *)out->scratch.data;
  bag_begin = id_begin + in->n_features + 1;
  strides = bag_begin + in->n_features + 1;
  out_begin = strides + n_out;
  PetscCall(TrsKjtReadLimits(device, compute, stream, in, &out->limits, id_begin, &pending));
  bag_begin[0] = 0;
  for (int f = 0; f < in->n_features; f++) bag_begin[f + 1] = bag_begin[f] + TrsKjtStride(in, f);
  if (pending) PetscCall(device->stream_synchronize(stream));
  out_begin[0] = 0;
  for (int j = 0; j < n_out; j++) {
    PetscCheck(indices[j] >= 0 && indices[j] < in->n_features, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "feature %d of a batch with %d", indices[j], in->n_features);
    strides[j] = TrsKjtStride(in, indices[j]);
    out_begin[j + 1] = out_begin[j] + id_begin[indices[j] + 1] - id_begin[indices[j]];
  }
  if (in->strides) {
    PetscCall(TrsKjtReserveVariable(device, out, n_out, strides, out_begin[n_out], in->is_weighted));
  } else {
    PetscCall(TrsKjtReserve(device, out, n_out, in->batch, out_begin[n_out], in->is_weighted));
  }
  PetscCall(compute->permute_blocks(stream, workspace, in->n_features, bag_begin, n_out, indices, &in->jagged,
                                    &out->jagged));
  out->id_begin = out_begin;
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
  view->id_begin = kjt->id_begin ? kjt->id_begin + begin : NULL;
  view->jagged.n_bags = n_bags;
  view->jagged.lengths += bag_begin;
  view->jagged.offsets += bag_begin;
  PetscFunctionReturn(PETSC_SUCCESS);
}
