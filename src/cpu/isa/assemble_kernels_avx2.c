/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX2, see CMakeLists.txt. Called only if the processor has AVX2. */
#include "cpu/isa/assemble_kernels.h"

#if defined(__AVX2__)
  #include "cpu/isa/assemble_scalar.h"
  #include "cpu/isa/assemble_squares_avx2.h"

/* Copy four ids at a time. A loop copies the remaining ids, because masked stores take longer. */
INLINE Good copy_narrow(int32_t n, const int32_t *from, uint32_t limit, int64_t *to, int most)
{
  const __m128i limits = _mm_set1_epi32((int)limit), ones = _mm_set1_epi32(1);
  __m128i good = _mm_set1_epi32(-1);
  int64_t i = 0;

  (void)most;
  for (; i + 4 <= n; i += 4) {
    const __m128i id = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
    const __m128i here = _mm_cmpeq_epi32(_mm_max_epu32(_mm_add_epi32(id, ones), limits), limits);

    good = _mm_and_si128(good, here);
    _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_cvtepi32_epi64(_mm_and_si128(id, here)));
  }
  return copy_narrow_ids(n - i, from + i, limit, to + i) & (_mm_movemask_epi8(good) == 0xffff);
}

  #include "cpu/isa/assemble_kernels_template.h"

const TrsAssembleKernels trs_assemble_kernels_avx2 = ASSEMBLE_KERNELS;
#endif
