/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels for any processor. */
#include "compute/assemble_kernels.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef int Good;

static const Good all_good = 1;

INLINE Good both(Good a, Good b)
{
  return a & b;
}

INLINE void transpose_8(const int32_t *const *row, int col, int32_t *to)
{
  for (int c = 0; c < 8; c++)
    for (int r = 0; r < 8; r++) to[TrsTilePlace(c, r)] = row[r][col + c];
}

INLINE Good copy_narrow(int32_t n, const int32_t *from, uint32_t limit, int64_t *to, int most)
{
  Good good = all_good;

  (void)most;
  for (int64_t i = 0; i < n; i++) {
    const int is_good = (uint32_t)from[i] + 1u <= limit;

    to[i] = is_good ? from[i] : 0;
    good &= is_good;
  }
  return good;
}

INLINE Good copy_wide(int32_t n, const int64_t *from, uint64_t limit, int64_t *to, int most)
{
  Good good = all_good;

  (void)most;
  for (int64_t i = 0; i < n; i++) {
    const int is_good = (uint64_t)from[i] + 1u <= limit;

    to[i] = is_good ? from[i] : 0;
    good &= is_good;
  }
  return good;
}

INLINE void copy_weights(int32_t n, const float *from, float *to)
{
  memcpy(to, from, (size_t)n * sizeof(*to));
}

#include "compute/assemble_kernels_template.h"

const TrsAssembleKernels trs_assemble_kernels_portable = ASSEMBLE_KERNELS;
