/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Products of small matrices by a warp on tensor cores, from bf16 to floats. All 32 lanes must call
  these functions. Lane l belongs to row or column l / 4 of a matrix and to its pair of columns or
  rows l % 4.

  Copies from global to shared memory may be under way while a warp multiplies.

  Source: PTX ISA, mma.m16n8k16, ldmatrix and cp.async
*/
#pragma once

#include "gpu/wide_cuda.h"

/*
  c [16, 8] += a [16, 16] b [16, 8]. A word has two neighbours along the dimension of 16 that is
  summed, k and k + 1, with k = 2 (l % 4) in words 0 and 1 of a and word 0 of b, and 8 more in the
  other words. Words 0 and 2 of a are of row l / 4, words 1 and 3 of row l / 4 + 8; b's are of
  column l / 4. c has rows l / 4 (elements 0, 1) and l / 4 + 8 (2, 3), and columns 2 (l % 4) and
  2 (l % 4) + 1. The stand-in adds the products in ascending order of k; a GPU's order is unknown.
*/
static __device__ __forceinline__ void multiply_tile_bf16(const unsigned a[4], const unsigned b[2],
                                                          float c[4])
{
#if defined(__CUDACC__)
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  cuda_on_cpu::multiply_tile_bf16(a, b, c);
#endif
}

/*
  Load N tiles (2 or 4) of 8 x 8 from shared memory, transposed, as the words of b above. Lane l,
  below 8N, passes the address of row l % 8 of tile l / 8, which must be aligned to 16 bytes. Word w
  of a lane has the numbers of rows 2 (l % 4) and 2 (l % 4) + 1 in column l / 4 of tile w.
*/
template <int N> static __device__ __forceinline__ void load_transposed(const Bf16 *row, unsigned word[N])
{
  static_assert(N == 2 || N == 4, "two or four matrices of 8 x 8");
#if defined(__CUDACC__)
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));

  if constexpr (N == 4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1])
                 : "r"(at)
                 : "memory");
#else
  cuda_on_cpu::load_transposed(N, row, word);
#endif
}

/*
  Load four tiles of 8 x 8 from shared memory. Lane l has the address of row l % 8 of tile l / 8,
  aligned to 16 bytes. Word w of a lane has the numbers 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 in
  tile w.
*/
static __device__ __forceinline__ void load_tiles(const Bf16 *row, unsigned word[4])
{
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  cuda_on_cpu::load_tiles(row, word);
#endif
}

/*
  Start to copy 16 bytes from global to shared memory; both addresses must be aligned to 16 bytes.
  A thread's copies since its last end_copies() form a group. wait_for_copies() waits for all of
  this thread's groups except the last N. Only a barrier after it lets other threads read them.
*/
static __device__ __forceinline__ void start_copy(Bf16 *to, const Bf16 *from)
{
#if defined(__CUDACC__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(__cvta_generic_to_global(from))
               : "memory");
#else
  cuda_on_cpu::start_copy(to, from);
#endif
}

static __device__ __forceinline__ void end_copies()
{
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" : : : "memory");
#else
  cuda_on_cpu::end_copies();
#endif
}

template <int N> static __device__ __forceinline__ void wait_for_copies()
{
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
#else
  cuda_on_cpu::wait_for_copies(N);
#endif
}
