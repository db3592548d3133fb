/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Prefix sums, stable sorts and runs of equal keys on the GPU. Jagged tensors, embeddings and the
  cache of rows share them.
*/
#pragma once

#include "gpu/cuda_language.h"
#include "gpu/workspace_cuda.h"

/*
  sum[0..n] is the 64-bit exclusive prefix sum of counts[0..n). sum must not overlap counts, because
  it temporarily holds sums of tiles. Not collective; enqueued on the stream.
*/
PetscErrorCode TrsCudaScan(TrsStream stream, int64_t n, const int32_t *counts, int64_t *sum);

/*
  Stable sort of n < 2^32 pairs by key bits [0, bits). Key and Item can be uint64_t or uint32_t. The
  arrays keys and items [n] are not changed; the sorted keys and items are written to other arrays.
  The workspace holds the sort's own scratch memory. Each pass moves the bytes of all keys and items
  twice.
*/
template <class Key, class Item>
PetscErrorCode TrsCudaSortPairs(TrsWorkspace workspace, TrsStream stream, int64_t n, int bits,
                                const Key *keys, Key *sorted_keys, const Item *items, Item *sorted_items);

/*
  Runs of equal keys among sorted keys. All arrays are device memory; only the device knows the
  number of runs.
*/
struct Runs {
  int64_t n;
  uint64_t *key; /* [n] sorted; keys >= end_key belong to no run */
  /* [n] 1 if a run begins at this key; later steps use the array as scratch memory */
  int32_t *flags;
  /* [n + 1] number of runs that begin before each key; before[n] is the number of all runs */
  int64_t *before;
  int64_t *begin;   /* [number of runs + 1] index of each run's first key */
  uint64_t *key_of; /* [number of runs] key of each run */
};

/* Reserve scratch memory in the workspace for n keys and their runs. */
PetscErrorCode TrsCudaReserveRuns(TrsWorkspace workspace, int64_t n, Runs *runs);

/* Compute the other arrays of runs from its keys. Not collective; enqueued on the stream. */
PetscErrorCode TrsCudaFindRuns(TrsStream stream, uint64_t end_key, const Runs *runs);

/* Number of bits that keys up to `largest` have. */
int TrsCudaBitsFor(uint64_t largest);

/*
  The last index i with begin[i] <= x, for n + 1 ascending numbers. So it is never an empty range.
*/
static __device__ __forceinline__ int64_t TrsCudaBlockOf(const int64_t *begin, int64_t n, int64_t x)
{
  int64_t low = 0, high = n - 1;

  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (begin[middle] <= x)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}
