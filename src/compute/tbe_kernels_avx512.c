/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compiled for AVX-512 (F, BW, DQ, VL), see CMakeLists.txt. Called only if the processor has them.
*/
#include "compute/tbe_kernels.h"

#if defined(__AVX512F__)
  #include <immintrin.h>

  #define PART 16
typedef float Part __attribute__((vector_size(64)));

static inline Part widen_fp16(const uint16_t *p)
{
  return (Part)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline Part widen_bf16(const uint16_t *p)
{
  return (Part)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)),
                                 16);
}

  #define MAX_REGISTER_COLUMNS 256
  #include "compute/tbe_kernels_template.h"

const TrsTbeKernels trs_tbe_kernels_avx512 = TBE_KERNELS;
#endif
