/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Runs of occurrences on the GPU (tbe_occurrences_cuda.h), and the sums of their gradients in a
  lane's columns.
*/
#pragma once

#include "gpu/tbe/tbe_occurrences_cuda.h"
#include "gpu/wide_cuda.h"

static __device__ __forceinline__ const UpdateTable *table_of(const Gradients &g, uint64_t key)
{
  int low = 0, high = g.n_tables - 1;

  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (static_cast<uint64_t>(g.table[middle].key_begin) <= key)
      low = middle;
    else
      high = middle - 1;
  }
  return &g.table[low];
}

/*
  Load the place of occurrence k's gradient (Occurrences.place). Returns the factor of the gradient.
*/
static __device__ __forceinline__ float load_place(const Occurrences &o, int64_t k, uint32_t *place)
{
  if (!o.scaled_place) {
    *place = o.place[k];
    return 1.0f;
  }
  const uint64_t both = o.scaled_place[k];
  const uint32_t upper = static_cast<uint32_t>(both >> 32);

  *place = static_cast<uint32_t>(both);
  return o.weights ? o.weights[upper] : __uint_as_float(upper);
}

/*
  Add to acc[COLUMNS] the gradients of sorted occurrences [begin, end), in order, in the columns
  from col on. All places are loaded before the first gradient.
*/
template <int COLUMNS, bool ALIGNED, class G>
static __device__ __forceinline__ void add_occurrences(const Occurrences &o, const Gradients &g,
                                                       int64_t begin, int64_t end, int col, float *acc)
{
  constexpr int IN_FLIGHT = COLUMNS > 4 ? 2 : 4;

  for (int64_t k = begin; k < end; k += IN_FLIGHT) {
    float x[IN_FLIGHT][COLUMNS], scale[IN_FLIGHT];
    uint32_t place[IN_FLIGHT];

#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      place[u] = 0;
      scale[u] = k + u < end ? load_place(o, k + u, &place[u]) : 0.0f;
    }
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      const int64_t feature = place[u] >> o.bag_bits, bag = place[u] & ((1u << o.bag_bits) - 1);
      const G *const from = static_cast<const G *>(g.grad) + bag * g.stride + g.out_column[feature] + col;

      for (int j = 0; j < COLUMNS; j++) x[u][j] = 0.0f;
      if (k + u >= end) continue;
      if constexpr (ALIGNED)
        load_numbers<COLUMNS>(from, x[u]);
      else
        for (int j = 0; j < COLUMNS; j++) x[u][j] = to_float(from[j]);
    }
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++)
      for (int j = 0; j < COLUMNS; j++) acc[j] += scale[u] * x[u][j];
  }
}

template <int COLUMNS>
static __device__ __forceinline__ void sum_occurrences(const Occurrences &o, const Gradients &g,
                                                       int64_t begin, int64_t end, int col, float *acc)
{
  for (int j = 0; j < COLUMNS; j++) acc[j] = 0.0f;
  if (g.narrow && g.aligned)
    add_occurrences<COLUMNS, true, Bf16>(o, g, begin, end, col, acc);
  else if (g.narrow)
    add_occurrences<COLUMNS, false, Bf16>(o, g, begin, end, col, acc);
  else if (g.aligned)
    add_occurrences<COLUMNS, true, float>(o, g, begin, end, col, acc);
  else
    add_occurrences<COLUMNS, false, float>(o, g, begin, end, col, acc);
}

/* A run, and the key of its row. */
struct Run {
  uint64_t key;
  /* indices of occurrences; 32 bits suffice, because there are fewer than 2^32 */
  uint32_t begin, end;
};

static __device__ __forceinline__ Run load_run(const Occurrences &o, int64_t r)
{
  return {o.key_of[r], o.begin[r], o.begin[r + 1]};
}

/* The summed gradient of a long run in the columns from col on. */
template <int COLUMNS>
static __device__ __forceinline__ void sum_pieces(const Occurrences &o, const Gradients &g, int64_t r,
                                                  int col, float *acc)
{
  const int64_t first = o.piece_begin[r], end = o.piece_begin[r + 1];

  load_floats<COLUMNS>(g.sums + first * g.sums_stride + col, acc);
#pragma unroll(COLUMNS > 4 ? 1 : 4)
  for (int64_t p = first + 1; p < end; p++) {
    float x[COLUMNS];

    load_floats<COLUMNS>(g.sums + p * g.sums_stride + col, x);
    for (int j = 0; j < COLUMNS; j++) acc[j] += x[j];
  }
}

/* The summed gradient of run r in the columns from col on. */
template <int COLUMNS>
static __device__ __forceinline__ void sum_run(const Occurrences &o, const Gradients &g, int64_t r,
                                               const Run &run, int col, float *acc)
{
  if (run.end - run.begin <= TRS_SHORT_RUN) { /* a short run has no pieces */
    sum_occurrences<COLUMNS>(o, g, run.begin, run.end, col, acc);
    return;
  }
  sum_pieces<COLUMNS>(o, g, r, col, acc);
}
