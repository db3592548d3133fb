/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Computes a cache's miss rate from a histogram of reuse distances.

  Source: TorchRec CacheStatistics, EmbeddingOffloadStats
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/*
  The i-th boundary (0..n) of the n equal parts of [0, height], in float32 as torch.linspace
  computes it.
*/
float TrsCacheStatsBin(int n, int64_t height, int i);

/*
  TrsCacheMissRate - The share of ids that miss a cache of load_factor * height rows.

  Not collective. Computes in float32 as TorchRec does, and returns the result as double.

  In:  hist  [n] number of lookups in each of n equal parts of the range of reuse distances
*/
double TrsCacheMissRate(int n, const double *hist, int64_t height, double load_factor);
