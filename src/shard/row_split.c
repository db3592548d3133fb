/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/row_split.h"

PetscErrorCode TrsRowSplitCreate(int n_buckets, int n_features, TrsRowSplit *split)
{
  PetscFunctionBegin;
  *split = (TrsRowSplit){.n_buckets = n_buckets, .n_features = n_features};
  PetscCall(PetscCalloc1((size_t)n_features, &split->spec));
  PetscCall(PetscCalloc1((size_t)n_features * (size_t)(n_buckets + 1), &split->bounds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRowSplitDestroy(TrsRowSplit *split)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(split->spec));
  PetscCall(PetscFree(split->bounds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsRowSplitSet(TrsRowSplit *split, int f, int first, int n_shards, const TrsShard *shard)
{
  const int n = split->n_buckets;
  const int64_t rows = shard[n_shards - 1].row_offset + shard[n_shards - 1].rows, block = (rows + n - 1) / n;
  int64_t *bounds = split->bounds + (int64_t)f * (n + 1);
  PetscBool even = PETSC_TRUE;

  for (int q = 0; q <= n; q++) {
    const int i = PetscMax(q - first, 0);
    bounds[q] = i < n_shards ? shard[i].row_offset : rows;
    even = (PetscBool)(even && bounds[q] == PetscMin(q * block, rows));
  }
  split->spec[f] = (TrsBucketSpec){.block_size = block, .bounds = even ? NULL : bounds};
}

PetscErrorCode TrsRowSplitBucketize(const TrsRowSplit *split, const TrsDeviceOps *device,
                                    const TrsComputeOps *compute, TrsStream stream, TrsWorkspace workspace,
                                    const TrsKjt *in, TrsKjt *out, int64_t *places)
{
  PetscFunctionBegin;
  PetscCall(TrsKjtReserve(device, out, split->n_buckets * split->n_features, in->batch, in->jagged.n_values,
                          in->is_weighted));
  PetscCall(compute->bucketize(stream, workspace, split->n_buckets, split->n_features, in->batch, split->spec,
                               PETSC_FALSE, &in->jagged, &out->jagged, NULL, places));
  PetscCall(TrsKjtOffsets(compute, stream, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}
