/* SPDX-License-Identifier: BSD-3-Clause */
/* How the rows of a group's features are cut over ranks, and the bucketizing of ids by it. */
#pragma once

#include "sparse/kjt.h"
#include "spec/sharding_plan.h"

typedef struct {
  int n_buckets, n_features;
  TrsBucketSpec *spec; /* [n_features] */
  int64_t *bounds;     /* [n_features, n_buckets + 1] where a split is uneven */
} TrsRowSplit;

PetscErrorCode TrsRowSplitCreate(int n_buckets, int n_features, TrsRowSplit *split);
PetscErrorCode TrsRowSplitDestroy(TrsRowSplit *split);

/* Feature f's table is cut as shard [n_shards] (consecutive row ranges, some may be empty) says, over as many buckets from `first` on. */
void TrsRowSplitSet(TrsRowSplit *split, int f, int first, int n_shards, const TrsShard *shard);

/*
  in [F][B] -> out [bucket][F][B] with ids counted from the start of their shard. out grows as needed; its offsets are filled. places (or
  NULL) [N]: where in out each id of in went.
*/
PetscErrorCode TrsRowSplitBucketize(const TrsRowSplit *split, const TrsDeviceOps *device,
                                    const TrsComputeOps *compute, TrsStream stream, TrsWorkspace workspace,
                                    const TrsKjt *in, TrsKjt *out, int64_t *places);
