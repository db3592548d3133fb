/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/for_each.h"

void TrsForEach(int64_t n, void (*body)(void *context, int64_t i), void *context)
{
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i++) body(context, i);
}
