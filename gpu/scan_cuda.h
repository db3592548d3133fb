/* SPDX-License-Identifier: BSD-3-Clause */
/* Prefix sums and stable sorts on the GPU, the steps that jagged tensors and embeddings share. */
#pragma once

#include "gpu/cuda_language.h"
#include "gpu/workspace_cuda.h"

/*
  sum[0..n] = exclusive prefix sum of counts[0..n), 64-bit; sum must not overlap counts and serves as the scratch of its own tiles.
  Not collective; enqueued on the stream.
*/
PetscErrorCode TrsCudaScan(TrsStream stream, int64_t n, const int32_t *counts, int64_t *sum);

/*
  Stable sort of pairs by key bits [0, bits). keys, items [n] are left as they are; the sorted ones are in other scratch. Scratch of the sort
  itself is in the workspace.
*/
PetscErrorCode TrsCudaSortPairs(TrsWorkspace workspace, TrsStream stream, int64_t n, int bits,
                                const uint64_t *keys, uint64_t *sorted_keys, const uint32_t *items,
                                uint32_t *sorted_items);
