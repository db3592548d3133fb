/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Simple loops that read and write rows at random places as fast as the machine can. They are the
  limits with which kernels are compared, so they must not call kernels of the program.
*/
#pragma once

#include <stdint.h>
#if defined(__SSE__)
  #include <xmmintrin.h>
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  #define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
  #define FMA  __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
  #define WIDE
  #define FMA
#endif
#define INLINE static inline __attribute__((always_inline))

/*
  A cache line has LINE floats. A vector has half as many: gcc 12 splits wider ones badly on AVX2,
  and on AVX-512 the loops wait for memory.
*/
enum { LINE = 16, LANES = 8 };
typedef float Vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* A macro, because a function that returns a Vec depends on the instruction set. */
#define LOAD(from) (*(const Vec *)(from))

INLINE void store(float *to, const Vec *from, int streaming)
{
#if defined(__SSE__)
  if (streaming) {
    for (int i = 0; i < LANES; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps((const float *)from + i));
    return;
  }
#else
  (void)streaming;
#endif
  *(Vec *)to = *from;
}

/*
  Prefetch a row that is used `ahead` rows later. If `pairs` is set, prefetch the second lines of
  pairs later, because many processors fetch the second line of a pair themselves.
*/
INLINE void prefetch_rows(const int D, const float *table, const uint32_t *row, int64_t n, int64_t i,
                          int64_t ahead, int pairs)
{
  const float *far = table + (int64_t)row[i + ahead < n ? i + ahead : n - 1] * D;
  const float *near = table + (int64_t)row[i + 8 < n ? i + 8 : n - 1] * D;

#pragma GCC unroll 32
  for (int v = 0; v < D / LINE; v++) __builtin_prefetch((pairs && v % 2 ? near : far) + (int64_t)LINE * v);
}

/*
  Add up bags of `pooling` rows. kind: bit 1 means stores that bypass the caches, bit 2 means
  prefetch of lines in pairs, bit 4 means prefetch of the result's lines.
*/
INLINE void gather_dim(const int D, const float *table, const uint32_t *row, int64_t n, int64_t pooling,
                       int64_t ahead, int kind, float *out, int64_t stride)
{
  for (int64_t b = 0; b < n / pooling; b++, out += stride) {
    Vec sum[32];

#pragma GCC unroll 32
    for (int v = 0; v < D / LANES; v++) {
      sum[v] = (Vec){0.0f};
      if (kind & 4 && v % 2) __builtin_prefetch(out + 16 * stride + (int64_t)LANES * v);
    }
    for (int64_t i = b * pooling; i < (b + 1) * pooling; i++) {
      prefetch_rows(D, table, row, n, i, ahead, kind & 2);
#pragma GCC unroll 32
      for (int v = 0; v < D / LANES; v++) sum[v] += LOAD(table + (int64_t)row[i] * D + (int64_t)LANES * v);
    }
#pragma GCC unroll 32
    for (int v = 0; v < D / LANES; v++) store(out + (int64_t)LANES * v, &sum[v], kind & 1);
  }
}

/* Call gather_dim() with a constant width. `stride` is the distance between two results. */
WIDE static void gather(int64_t D, const float *table, const uint32_t *row, int64_t n, int64_t pooling,
                        int64_t ahead, int kind, float *out, int64_t stride)
{
  if (D == 32) gather_dim(32, table, row, n, pooling, ahead, kind, out, stride);
  if (D == 64) gather_dim(64, table, row, n, pooling, ahead, kind, out, stride);
  if (D == 128) gather_dim(128, table, row, n, pooling, ahead, kind, out, stride);
  if (D == 256) gather_dim(256, table, row, n, pooling, ahead, kind, out, stride);
}
