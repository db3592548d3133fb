/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Miss rate of a cache from the histogram of reuse distances. Source:
  TorchRec CacheStatistics, EmbeddingOffloadStats.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* End i (0..n) of the n equal parts of [0, height], in float32 as torch.linspace computes it. */
float TrsCacheStatsBin(int n, int64_t height, int i);

/*
  TrsCacheMissRate - The share of the ids that a cache of load_factor * height rows does not hold.

  Not collective. Everything but the result is float32, as in TorchRec.

  In:  hist  [n] counts over equal parts of the rows
*/
double TrsCacheMissRate(int n, const double *hist, int64_t height, double load_factor);
