/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Prefix sums, stable sorts and runs of equal keys on the GPU. Jagged tensors, embeddings and the
  cache of rows share them.
*/
#pragma once

#include "gpu/cuda_language.h"
#include "gpu/workspace_cuda.h"

/*
  sum[0..n] = exclusive prefix sum of counts[0..n), 64-bit. sum must not overlap counts; it
  temporarily holds the tiles' sums. Not collective; enqueued on the stream.
*/
PetscErrorCode TrsCudaScan(TrsStream stream, int64_t n, const int32_t *counts, int64_t *sum);

/*
  Stable sort of n < 2^32 pairs by key bits [0, bits). A key or an item is uint64_t or uint32_t.
  keys and items [n] are not changed; the sorted ones are written elsewhere. The workspace holds the
  sort's own scratch memory. Each pass moves the bytes of keys and items twice.
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
  uint64_t *key;    /* [n] sorted; keys >= end_key belong to no run */
  int32_t *flags;   /* [n] a run begins here; scratch for later steps */
  int64_t *before;  /* [n + 1] number of runs that begin before; before[n] counts all */
  int64_t *begin;   /* [runs + 1] */
  uint64_t *key_of; /* [runs] */
};

/* Reserve scratch memory in the workspace for n keys and their runs. */
PetscErrorCode TrsCudaReserveRuns(TrsWorkspace workspace, int64_t n, Runs *runs);

/* Compute the other arrays from the keys. Not collective; enqueued on the stream. */
PetscErrorCode TrsCudaFindRuns(TrsStream stream, uint64_t end_key, const Runs *runs);

/* Number of bits for keys up to `largest`. */
int TrsCudaBitsFor(uint64_t largest);

/* The last of n + 1 ascending places that is at most x. Empty ranges are skipped. */
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
