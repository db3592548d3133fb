/* SPDX-License-Identifier: BSD-3-Clause */
#include "sparse/kjt.h"

PetscErrorCode TrsKjtReserve(const TrsDeviceOps *device, TrsKjt *kjt, int n_features, int64_t batch,
                             int64_t n_values, PetscBool weighted)
{
  const int64_t n_bags = n_features * batch;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(device, &kjt->lengths, n_bags * (int64_t)sizeof(int32_t)));
  PetscCall(TrsDeviceBufferReserve(device, &kjt->offsets, (n_bags + 1) * (int64_t)sizeof(int64_t)));
  PetscCall(TrsDeviceBufferReserve(device, &kjt->values, n_values * (int64_t)sizeof(int64_t)));
  if (weighted) PetscCall(TrsDeviceBufferReserve(device, &kjt->weights, n_values * (int64_t)sizeof(float)));
  kjt->n_features = n_features;
  kjt->batch = batch;
  kjt->is_weighted = weighted;
  kjt->jagged = (TrsJagged){.n_bags = n_bags,
                            .n_values = n_values,
                            .lengths = (int32_t *)kjt->lengths.data,
                            .offsets = (int64_t *)kjt->offsets.data,
                            .values = (int64_t *)kjt->values.data,
                            .weights = weighted ? (float *)kjt->weights.data : NULL};
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

/* Where each feature's ids begin, on the host: at[f] = offsets[f * batch]. */
static PetscErrorCode read_limits(const TrsDeviceOps *device, TrsStream stream, const TrsKjt *kjt,
                                  int64_t *at)
{
  PetscFunctionBegin;
  for (int f = 0; f <= kjt->n_features; f++) {
    const int64_t *from = kjt->jagged.offsets + f * kjt->batch;
    if (device->host_memory) {
      at[f] = *from;
    } else {
      PetscCall(device->copy(&at[f], from, (int64_t)sizeof(*from), stream));
    }
  }
  if (!device->host_memory) PetscCall(device->stream_synchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtPermute(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                             TrsWorkspace workspace, const TrsKjt *in, int n_out, const int *indices,
                             TrsKjt *out)
{
  int64_t *limits, *block_begin, n_values = 0;

  PetscFunctionBegin;
  PetscCall(
      TrsBufferReserve(&out->scratch, 2 * (in->n_features + 1) * (int64_t)sizeof(*limits), PETSC_FALSE));
  limits = (int64_t *)out->scratch.data;
  block_begin = limits + in->n_features + 1;
  PetscCall(read_limits(device, stream, in, limits));
  for (int f = 0; f <= in->n_features; f++) block_begin[f] = f * in->batch;
  for (int j = 0; j < n_out; j++) {
    PetscCheck(indices[j] >= 0 && indices[j] < in->n_features, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "feature %d of a batch with %d", indices[j], in->n_features);
    n_values += limits[indices[j] + 1] - limits[indices[j]];
  }
  PetscCall(TrsKjtReserve(device, out, n_out, in->batch, n_values, in->is_weighted));
  PetscCall(compute->permute_blocks(stream, workspace, in->n_features, block_begin, n_out, indices,
                                    &in->jagged, &out->jagged));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsKjtView(const TrsKjt *kjt, int begin, int n, TrsKjt *view)
{
  PetscFunctionBegin;
  PetscCheck(begin >= 0 && n >= 0 && begin + n <= kjt->n_features, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "features %d to %d of a batch with %d", begin, begin + n, kjt->n_features);
  *view = (TrsKjt){
      .n_features = n, .batch = kjt->batch, .is_weighted = kjt->is_weighted, .jagged = kjt->jagged};
  view->jagged.n_bags = n * kjt->batch;
  view->jagged.lengths += begin * kjt->batch;
  view->jagged.offsets += begin * kjt->batch;
  PetscFunctionReturn(PETSC_SUCCESS);
}
