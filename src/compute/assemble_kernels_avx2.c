/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX2, see CMakeLists.txt. Called only if the processor has it. */
#include "compute/assemble_kernels.h"

#if defined(__AVX2__)
  #include "compute/assemble_squares_avx2.h"

  #include <string.h>

typedef int Good;

static const Good all_good = 1;

INLINE Good both(Good a, Good b)
{
  return a & b;
}

/* Four ids at a time: stores under a mask cost more than a loop. */
INLINE Good copy_narrow(int32_t n, const int32_t *from, uint32_t limit, int64_t *to, int most)
{
  const __m128i limits = _mm_set1_epi32((int)limit), ones = _mm_set1_epi32(1);
  __m128i good = _mm_set1_epi32(-1);
  Good rest = all_good;
  int64_t i = 0;

  (void)most;
  for (; i + 4 <= n; i += 4) {
    const __m128i id = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
    const __m128i here = _mm_cmpeq_epi32(_mm_max_epu32(_mm_add_epi32(id, ones), limits), limits);

    good = _mm_and_si128(good, here);
    _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_cvtepi32_epi64(_mm_and_si128(id, here)));
  }
  for (; i < n; i++) {
    const int is_good = (uint32_t)from[i] + 1u <= limit;

    to[i] = is_good ? from[i] : 0;
    rest &= is_good;
  }
  return rest & (_mm_movemask_epi8(good) == 0xffff);
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

const TrsAssembleKernels trs_assemble_kernels_avx2 = ASSEMBLE_KERNELS;
#endif
