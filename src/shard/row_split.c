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

PetscErrorCode TrsRowSplitSet(TrsRowSplit *split, int f, const TrsShard *shard)
{
  int64_t *bounds = split->bounds + (int64_t)f * (split->n_buckets + 1);
  const int64_t rows = shard[split->n_buckets - 1].row_offset + shard[split->n_buckets - 1].rows;
  const int64_t block = (rows + split->n_buckets - 1) / split->n_buckets;
  PetscBool even = PETSC_TRUE;

  PetscFunctionBegin;
  for (int q = 0; q < split->n_buckets; q++) {
    bounds[q] = shard[q].row_offset;
    even = (PetscBool)(even && bounds[q] == PetscMin(q * block, rows));
  }
  bounds[split->n_buckets] = rows;
  split->spec[f] = (TrsBucketSpec){.block_size = block, .bounds = even ? NULL : bounds};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRowSplitSetPart(TrsRowSplit *split, int f, int first, int n_shards, const TrsShard *shard)
{
  int64_t *bounds = split->bounds + (int64_t)f * (split->n_buckets + 1);

  PetscFunctionBegin;
  for (int q = 0; q <= split->n_buckets; q++) {
    const int i = PetscMin(PetscMax(q - first, 0), n_shards);
    bounds[q] = i < n_shards ? shard[i].row_offset
                             : shard[n_shards - 1].row_offset + shard[n_shards - 1].rows;
  }
  split->spec[f] = (TrsBucketSpec){.block_size = 1, .bounds = bounds};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRowSplitBucketize(const TrsRowSplit *split, const TrsDeviceOps *device,
                                    const TrsComputeOps *compute, TrsStream stream, TrsWorkspace workspace,
                                    const TrsKjt *in, TrsKjt *out, int64_t *places)
{
  PetscFunctionBegin;
  PetscCall(TrsKjtReserve(device, out, split->n_buckets * split->n_features, in->batch, in->jagged.n_values,
                          in->is_weighted));
  PetscCall(compute->bucketize(stream, workspace, split->n_buckets, split->n_features, in->batch, split->spec,
                               &in->jagged, &out->jagged, places));
  PetscCall(TrsKjtOffsets(compute, stream, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}
