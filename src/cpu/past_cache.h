/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stores that bypass the caches, for large results that would be evicted from the caches before they
  are read. An ordinary store would first read the cache line from memory. At the end, each thread
  must call TrsPastCacheEnd(), which makes its stores visible to other threads. Internal to cpu/.
*/
#pragma once

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
  #include <emmintrin.h>
  #define TRS_CAN_PAST_CACHE 1
#else
  #define TRS_CAN_PAST_CACHE 0
#endif

/*
  Results of at least this many bytes are written past the caches; smaller results stay in the
  second-level cache.
*/
#define TRS_PAST_CACHE_BYTES ((int64_t)4 << 20)

/*
  True if a float matrix, including gaps between rows, is large enough to bypass the caches, and
  each row begins and ends at a cache line.
*/
static inline int TrsPastCacheMatrix(int64_t rows, int64_t cols, const float *to, int64_t to_stride)
{
  return TRS_CAN_PAST_CACHE && rows * to_stride * (int64_t)sizeof(float) >= TRS_PAST_CACHE_BYTES &&
         cols % 16 == 0 && to_stride % 16 == 0 && (uintptr_t)to % 64 == 0;
}

/*
  Copy n floats past the caches. n must be a multiple of 16, and `to` must begin at a cache line.
  The floats at from + next are prefetched for a later call.
*/
static inline void TrsPastCacheCopy(int64_t n, const float *from, int64_t next, float *to)
{
#if defined(__SSE2__)
  for (int64_t i = 0; i < n; i += 16) {
    __builtin_prefetch(from + next + i);
    for (int64_t j = i; j < i + 16; j += 4) _mm_stream_ps(to + j, _mm_loadu_ps(from + j));
  }
#else
  (void)next;
  memcpy(to, from, (size_t)n * sizeof(float));
#endif
}

static inline void TrsPastCacheEnd(void)
{
#if defined(__SSE2__)
  _mm_sfence();
#endif
}
