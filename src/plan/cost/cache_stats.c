/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/cost/cache_stats.h"

#include <math.h>

float TrsCacheStatsBin(int n, int64_t height, int i)
{
  float end = (float)height, step = end / (float)n;

  return i < (n + 1) / 2 ? step * (float)i : fmaf(-step, (float)(n - i), end);
}

double TrsCacheMissRate(int n, const double *hist, int64_t height, double load_factor)
{
  float rows = (float)(load_factor * (double)height) - 1.0f, sum = 0, part = 0;
  int k = 0; /* number of bins that lie within the cached rows */

  for (int i = 0; i < n; i++) sum += (float)hist[i];
  if (sum == 0) return 0.0;
  while (k <= n && TrsCacheStatsBin(n, height, k) <= rows) k++;
  if (k == 0) return 1.0;
  if (k == n + 1) return 0.0;
  for (int i = 0; i < k; i++) part += (float)hist[i];
  return (double)(1.0f - part / sum);
}
