/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Functions that copy a bag id by id, for assemble_kernels_portable.c and assemble_kernels_avx2.c.
*/
#include <string.h>

typedef int Good;

static const Good all_good = 1;

INLINE Good both(Good a, Good b)
{
  return a & b;
}

INLINE Good copy_narrow_ids(int64_t n, const int32_t *from, uint32_t limit, int64_t *to)
{
  Good good = all_good;

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
