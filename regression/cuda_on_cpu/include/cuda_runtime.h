/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stand-in for the part of CUDA C++ that the kernels in gpu/ use. A block's threads are fibers of
  one CPU thread. They switch at __syncthreads() and warp functions. Blocks run one after another,
  and warps in a random order.
*/
#pragma once

#include "cuda_on_cpu.h"
#include "races.h"

#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
#define __constant__ static
#define __shared__   static /* static, because blocks run one at a time */

/*
  Sources differ between nvcc and the stand-in in these two places. gpu/cuda_language.h has the
  versions for nvcc.
*/
#define CU_START(kernel, grid, block, shared, stream, ...) \
  cuda_on_cpu::launch(#kernel, kernel, grid, block, shared, stream, __VA_ARGS__)
#define CU_DYN_SHARED(T, name) T *name = reinterpret_cast<T *>(cuda_on_cpu::dynamic_shared())

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
  {
  }
};
struct __attribute__((aligned(8))) int2 {
  int x, y;
};
struct __attribute__((aligned(16))) int4 {
  int x, y, z, w;
};
struct __attribute__((aligned(8))) uint2 {
  unsigned x, y;
};
struct __attribute__((aligned(16))) uint4 {
  unsigned x, y, z, w;
};
struct __attribute__((aligned(8))) float2 {
  float x, y;
};
struct __attribute__((aligned(16))) float4 {
  float x, y, z, w;
};
static inline float2 make_float2(float x, float y)
{
  return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
  return {x, y, z, w};
}

/* Accesses by the stand-in itself are not accesses of the kernel. */
#define CU_UNSEEN __attribute__((no_sanitize("thread")))

namespace cuda_on_cpu
{
/* The thread that runs now, with its block and grid. */
struct place {
  uint3 thread, block_index;
  dim3 block, grid;
  int index; /* index of the thread in its block */
};
extern place here;

enum warp_call { SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BALLOT, SYNC, MATCH, TENSOR };

void *dynamic_shared();
void meet_block();
/*
  All lanes of the mask contribute a value, and each lane receives the 32 values. All lanes must
  call the same function.
*/
const uint64_t *meet_warp(unsigned mask, uint64_t value, warp_call call);
/* Run the kernel. thread(call) runs it for one thread; call holds the kernel's arguments. */
void run_grid(const char *name, dim3 grid, dim3 block, size_t shared, void (*thread)(const void *),
              const void *call, size_t call_bytes);
void count_launch(cudaStream_t stream, const char *name, const void *kernel, size_t shared);
cudaError_t ask_shared(const void *kernel, int bytes);

template <class T> CU_UNSEEN void run_thread(const void *call)
{
  std::apply(static_cast<T *>(call)->first, static_cast<T *>(call)->second);
}

template <class... P, class... A>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
            A... arguments)
{
  const auto call = std::make_pair(kernel, std::tuple<std::decay_t<P>...>(static_cast<std::decay_t<P>>(
                                               /* the arguments are evaluated now, as in CUDA */
                                               arguments)...));

  count_launch(stream, name, reinterpret_cast<const void *>(kernel), shared);
  enqueue(stream, name, [=] {
    run_grid(name, grid, block, shared, &run_thread<decltype(call)>, &call, sizeof(call));
    return true;
  });
}

template <class T> uint64_t to_bits(T value)
{
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value,
                "a warp function takes up to 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(value));
  return bits;
}

template <class T> T from_bits(uint64_t bits)
{
  T value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

inline int lane()
{
  return here.index & 31;
}
} // namespace cuda_on_cpu

#define threadIdx (cuda_on_cpu::here.thread)
#define blockIdx  (cuda_on_cpu::here.block_index)
#define blockDim  (cuda_on_cpu::here.block)
#define gridDim   (cuda_on_cpu::here.grid)
#define warpSize  32

static inline void __syncthreads()
{
  cuda_on_cpu::meet_block();
}

CU_UNSEEN static inline int __syncthreads_or(int predicate)
{
  static int any; // one for the running block, because blocks run one at a time

  cuda_on_cpu::meet_block();
  any = 0;
  cuda_on_cpu::meet_block();
  any |= predicate;
  cuda_on_cpu::meet_block();
  return any != 0;
}

static inline void __syncwarp(unsigned mask = ~0u)
{
  cuda_on_cpu::meet_warp(mask, 0, cuda_on_cpu::SYNC);
}

template <class T> CU_UNSEEN T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
  const int base = cuda_on_cpu::lane() & ~(width - 1);
  return cuda_on_cpu::from_bits<T>(cuda_on_cpu::meet_warp(mask, cuda_on_cpu::to_bits(value),
                                                          cuda_on_cpu::SHUFFLE)[base + (from & (width - 1))]);
}

template <class T> CU_UNSEEN T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
  const int lane = cuda_on_cpu::lane(), from = (lane & (width - 1)) < (int)by ? lane : lane - (int)by;
  return cuda_on_cpu::from_bits<T>(
      cuda_on_cpu::meet_warp(mask, cuda_on_cpu::to_bits(value), cuda_on_cpu::SHUFFLE_UP)[from]);
}

template <class T> CU_UNSEEN T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
  const int lane = cuda_on_cpu::lane(),
            from = (lane & (width - 1)) + (int)by >= width ? lane : lane + (int)by;
  return cuda_on_cpu::from_bits<T>(
      cuda_on_cpu::meet_warp(mask, cuda_on_cpu::to_bits(value), cuda_on_cpu::SHUFFLE_DOWN)[from]);
}

template <class T> CU_UNSEEN T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32)
{
  const int lane = cuda_on_cpu::lane(), other = lane ^ with;
  const int from = other / width == lane / width ? other : lane;
  return cuda_on_cpu::from_bits<T>(
      cuda_on_cpu::meet_warp(mask, cuda_on_cpu::to_bits(value), cuda_on_cpu::SHUFFLE_XOR)[from]);
}

CU_UNSEEN static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
  const uint64_t *values = cuda_on_cpu::meet_warp(mask, predicate != 0, cuda_on_cpu::BALLOT);
  unsigned set = 0;

  for (unsigned i = 0; i < 32; i++)
    if (mask >> i & 1 && values[i]) set |= 1u << i;
  return set;
}

static inline int __any_sync(unsigned mask, int predicate)
{
  return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
  return __ballot_sync(mask, predicate) == mask;
}

// gpu/tensor_cuda.h: a tensor core's product of a warp, whose sums are in ascending order of k
namespace cuda_on_cpu
{
CU_UNSEEN static inline float of_bf16(uint64_t words, int at)
{
  const unsigned bits = static_cast<unsigned>(words >> 16 * at) << 16;
  float x;

  memcpy(&x, &bits, sizeof(x));
  return x;
}

CU_UNSEEN static inline void multiply_tile_bf16(const unsigned a[4], const unsigned b[2], float c[4])
{
  const int row = lane() / 4, column = lane() % 4 * 2;
  uint64_t of_a[2][32], of_b[32]; // the lanes' words of a's rows 0 to 7 and 8 to 15, and of b

  for (int half = 0; half < 2; half++)
    memcpy(of_a[half], meet_warp(~0u, a[half] | static_cast<uint64_t>(a[2 + half]) << 32, TENSOR),
           sizeof(of_a[half]));
  memcpy(of_b, meet_warp(~0u, b[0] | static_cast<uint64_t>(b[1]) << 32, TENSOR), sizeof(of_b));
  for (int e = 0; e < 4; e++)
    for (int k = 0; k < 16; k++) {
      const int pair = k % 8 / 2, at = k / 8 * 2 + k % 2;
      c[e] += of_bf16(of_a[e / 2][4 * row + pair], at) * of_bf16(of_b[4 * (column + e % 2) + pair], at);
    }
}

// The rows' addresses of all lanes. The races of the reads themselves are detected.
CU_UNSEEN static inline void meet_rows(const void *row, uint64_t rows[32])
{
  memcpy(rows, meet_warp(~0u, reinterpret_cast<uintptr_t>(row), TENSOR), 32 * sizeof(*rows));
}

static inline void load_tiles(const void *row, unsigned word[4])
{
  uint64_t rows[32];

  meet_rows(row, rows);
  for (int w = 0; w < 4; w++)
    word[w] = reinterpret_cast<const unsigned *>(rows[8 * w + lane() / 4])[lane() % 4];
}

static inline void load_transposed(int n_tiles, const void *row, unsigned *word)
{
  uint64_t rows[32];

  meet_rows(row, rows);
  for (int w = 0; w < n_tiles; w++) {
    const uint64_t *const pair = rows + 8 * w + lane() % 4 * 2;
    word[w] = reinterpret_cast<const uint16_t *>(pair[0])[lane() / 4] |
              static_cast<unsigned>(reinterpret_cast<const uint16_t *>(pair[1])[lane() / 4]) << 16;
  }
}

// A GPU copies at any time between the start and the wait. So each copy is made at one of these.
struct copy {
  void *to;
  const void *from;
};
bool copy_later(copy c);               // keep the copy for the wait, or return false
bool take_copy(int n_groups, copy *c); // a kept copy, of a group before the last n_groups
void end_copies();

static inline void copy_now(copy c)
{
  *static_cast<uint4 *>(c.to) = *static_cast<const uint4 *>(c.from);
}

static inline void start_copy(void *to, const void *from)
{
  const copy c = {to, from};

  if (!copy_later(c)) copy_now(c);
}

static inline void wait_for_copies(int n_groups)
{
  copy c;

  while (take_copy(n_groups, &c)) copy_now(c);
}
} // namespace cuda_on_cpu

template <class T> CU_UNSEEN unsigned __match_any_sync(unsigned mask, T value)
{
  const uint64_t bits = cuda_on_cpu::to_bits(value),
                 *values = cuda_on_cpu::meet_warp(mask, bits, cuda_on_cpu::MATCH);
  unsigned same = 0;

  for (unsigned i = 0; i < 32; i++)
    if (mask >> i & 1 && values[i] == bits) same |= 1u << i;
  return same;
}

static inline int __popc(unsigned x)
{
  return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
  return __builtin_popcountll(x);
}
static inline int __ffs(int x)
{
  return __builtin_ffs(x);
}
static inline int __clz(int x)
{
  return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
  return x ? __builtin_clzll((unsigned long long)x) : 64;
}
template <class T> static inline T __ldcg(const T *from)
{
  return *from;
}
static inline void __threadfence()
{
  cuda_on_cpu::races::fence();
}
static inline void __threadfence_block()
{
}
static inline unsigned __float_as_uint(float x)
{
  return cuda_on_cpu::from_bits<unsigned>(cuda_on_cpu::to_bits(x));
}
static inline float __uint_as_float(unsigned x)
{
  return cuda_on_cpu::from_bits<float>(x);
}
template <class T> T __ldg(const T *p)
{
  return *p;
}
/* Loads and stores with a hint for the caches. */
template <class T> T __ldcs(const T *p)
{
  return *p;
}
template <class T> void __stcg(T *p, T value)
{
  *p = value;
}
template <class T> void __stcs(T *p, T value)
{
  *p = value;
}

/*
  Threads switch only where they meet, so plain operations are atomic. The types are the types that
  CUDA has, without other overloads.
*/
#define CUDA_ON_CPU_ATOMIC(name, T, result) \
  CU_UNSEEN static inline T name(T *address, T value) \
  { \
    cuda_on_cpu::races::touch_atomically(address, sizeof(T)); \
    const T old = *address; \
    *address = (result); \
    return old; \
  }
CUDA_ON_CPU_ATOMIC(atomicAdd, int, old + value)
CUDA_ON_CPU_ATOMIC(atomicAdd, unsigned, old + value)
CUDA_ON_CPU_ATOMIC(atomicAdd, unsigned long long, old + value)
CUDA_ON_CPU_ATOMIC(atomicAdd, float, old + value)
CUDA_ON_CPU_ATOMIC(atomicAdd, double, old + value)
CUDA_ON_CPU_ATOMIC(atomicMax, int, old > value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicMax, unsigned, old > value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicMax, unsigned long long, old > value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicMax, long long, old > value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicMin, int, old < value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicMin, unsigned, old < value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicMin, unsigned long long, old < value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicMin, long long, old < value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicExch, int, value)
CUDA_ON_CPU_ATOMIC(atomicExch, unsigned, value)
CUDA_ON_CPU_ATOMIC(atomicExch, unsigned long long, value)
CUDA_ON_CPU_ATOMIC(atomicExch, float, value)
CUDA_ON_CPU_ATOMIC(atomicOr, int, old | value)
CUDA_ON_CPU_ATOMIC(atomicOr, unsigned, old | value)
CUDA_ON_CPU_ATOMIC(atomicOr, unsigned long long, old | value)
template <class T> CU_UNSEEN T atomicCAS(T *address, T expected, T value)
{
  cuda_on_cpu::races::touch_atomically(address, sizeof(T));
  const T old = *address;
  if (old == expected) *address = value;
  return old;
}

/* Typed functions of CUDA's C++ header. */
template <class T> cudaError_t cudaMalloc(T **pointer, size_t bytes)
{
  return cudaMalloc(reinterpret_cast<void **>(pointer), bytes);
}
/* Number of resident blocks. It is small, so that each block of a kernel loops more than once. */
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, T *, int threads, size_t)
{
  *blocks = threads > 64 ? 1 : 2;
  return cudaSuccess;
}

template <class T> cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute, int bytes)
{
  return cuda_on_cpu::ask_shared(reinterpret_cast<const void *>(kernel), bytes);
}
