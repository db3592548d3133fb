/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/scan_cuda.h"

#include <cub/cub.cuh>

/* Items per tile. A thread handles TRS_SCAN_ITEMS adjacent items, which are one 32-byte sector. */
enum { TRS_SCAN_THREADS = 256, TRS_SCAN_ITEMS = 8, TRS_SCAN_TILE = TRS_SCAN_THREADS * TRS_SCAN_ITEMS };

/*
  Exclusive prefix sum over the threads of a thread block, one value per thread. All threads get the
  total. All threads must call it.
*/
static __device__ int64_t block_scan(int64_t value, int64_t *total)
{
  __shared__ int64_t warp_sum[32];
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  const int n_warps = static_cast<int>(blockDim.x) >> 5;
  int64_t inclusive = value, before = 0, all = 0;

  for (int by = 1; by < 32; by *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, inclusive, by);
    if (lane >= by) inclusive += other;
  }
  if (lane == 31) warp_sum[warp] = inclusive;
  __syncthreads();
  for (int w = 0; w < n_warps; w++) {
    if (w < warp) before += warp_sum[w];
    all += warp_sum[w];
  }
  __syncthreads(); /* wait until warp_sum may be overwritten */
  *total = all;
  return before + inclusive - value;
}

/*
  One thread block per tile: write the sum of the tile's counts to the tile's first element of sum.
  Reads n counts.
*/
static __global__ void tile_sums_kernel(int64_t n, const int32_t *counts, int64_t *sum)
{
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * TRS_SCAN_TILE;
  int64_t mine = 0, total;

  for (int i = 0; i < TRS_SCAN_ITEMS; i++) {
    const int64_t at = tile + i * TRS_SCAN_THREADS + threadIdx.x;
    if (at < n) mine += counts[at];
  }
  block_scan(mine, &total);
  if (threadIdx.x == 0) sum[tile] = total;
}

/* One thread block: replace each tile's sum with the sum of all earlier tiles. */
static __global__ void __launch_bounds__(1024) scan_tiles_kernel(int64_t n, int64_t *sum)
{
  int64_t before = 0;

  for (int64_t first = 0; first < n; first += static_cast<int64_t>(blockDim.x) * TRS_SCAN_TILE) {
    const int64_t at = first + static_cast<int64_t>(threadIdx.x) * TRS_SCAN_TILE;
    int64_t total;
    const int64_t here = block_scan(at < n ? sum[at] : 0, &total);

    if (at < n) sum[at] = before + here;
    before += total;
  }
  if (threadIdx.x == 0) sum[n] = before;
}

/* One thread block per tile. Reads n counts and writes n prefix sums. */
static __global__ void scan_kernel(int64_t n, const int32_t *counts, int64_t *sum)
{
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * TRS_SCAN_TILE,
                first = tile + static_cast<int64_t>(threadIdx.x) * TRS_SCAN_ITEMS;
  const int64_t base = sum[tile];
  /* one element of padding per thread avoids bank conflicts */
  __shared__ int64_t out[TRS_SCAN_TILE + TRS_SCAN_THREADS];
  int32_t count[TRS_SCAN_ITEMS];
  int64_t mine = 0, at, total;

  for (int i = 0; i < TRS_SCAN_ITEMS; i++) {
    count[i] = first + i < n ? counts[first + i] : 0;
    mine += count[i];
  }
  /*
    the barriers in block_scan() ensure that all threads have read base before a thread overwrites
    it
  */
  at = base + block_scan(mine, &total);
  for (int i = 0; i < TRS_SCAN_ITEMS; i++) {
    out[threadIdx.x * (TRS_SCAN_ITEMS + 1) + i] = at;
    at += count[i];
  }
  __syncthreads();
  for (int i = 0; i < TRS_SCAN_ITEMS; i++) { /* adjacent threads store to adjacent addresses */
    const int k = i * TRS_SCAN_THREADS + static_cast<int>(threadIdx.x);
    if (tile + k < n) sum[tile + k] = out[k + k / TRS_SCAN_ITEMS];
  }
}

PetscErrorCode TrsCudaScan(TrsStream stream, int64_t n, const int32_t *counts, int64_t *sum)
{
  const unsigned tiles = static_cast<unsigned>((n + TRS_SCAN_TILE - 1) / TRS_SCAN_TILE);

  PetscFunctionBegin;
  if (n > 0) {
    CU_LAUNCH(tile_sums_kernel, tiles, TRS_SCAN_THREADS, 0, TrsCudaStream(stream), n, counts, sum);
    TrsCheckLaunch();
  }
  CU_LAUNCH(scan_tiles_kernel, 1, 32 * static_cast<unsigned>(PetscMin((tiles + 31) / 32 + !tiles, 32u)), 0,
            TrsCudaStream(stream), n, sum);
  TrsCheckLaunch();
  if (n > 0) {
    CU_LAUNCH(scan_kernel, tiles, TRS_SCAN_THREADS, 0, TrsCudaStream(stream), n, counts, sum);
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <class Key, class Item>
PetscErrorCode TrsCudaSortPairs(TrsWorkspace workspace, TrsStream stream, int64_t n, int bits,
                                const Key *keys, Key *sorted_keys, const Item *items, Item *sorted_items)
{
  /* CUB counts items in the type of this variable */
  const uint32_t n_items = static_cast<uint32_t>(n);
  size_t bytes = 0;
  void *temp;

  PetscFunctionBegin;
  if (n <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(n <= UINT32_MAX, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "a sort of %" PRId64 " items: 2^32 or more",
             n);
  TrsCallCUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted_keys, items, sorted_items, n_items,
                                              0, bits, TrsCudaStream(stream)));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_SORT, static_cast<int64_t>(bytes), 1, &temp));
  CU_LIBRARY("sort", stream,
             cub::DeviceRadixSort::SortPairs(temp, bytes, keys, sorted_keys, items, sorted_items, n_items, 0,
                                             bits, TrsCudaStream(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#define SORT_PAIRS(Key, Item) \
  template PetscErrorCode TrsCudaSortPairs(TrsWorkspace, TrsStream, int64_t, int, const Key *, Key *, \
                                           const Item *, Item *)
SORT_PAIRS(uint64_t, uint32_t);
SORT_PAIRS(uint32_t, uint32_t);
SORT_PAIRS(uint64_t, uint64_t);
SORT_PAIRS(uint32_t, uint64_t);

/* --- runs of equal keys --- */

static __global__ void run_flags_kernel(Runs runs, uint64_t end_key)
{
  for (int64_t i = TrsCudaFirst(); i < runs.n; i += TrsCudaStep())
    runs.flags[i] = runs.key[i] < end_key && (i == 0 || runs.key[i] != runs.key[i - 1]);
}

/*
  begin[number of runs] is the end of the last run: the index of the first key that belongs to no
  run.
*/
static __global__ void run_begin_kernel(Runs runs, uint64_t end_key)
{
  for (int64_t i = TrsCudaFirst(); i <= runs.n; i += TrsCudaStep()) {
    const bool valid = i < runs.n && runs.key[i] < end_key;

    if (valid && runs.flags[i]) {
      runs.begin[runs.before[i]] = i;
      runs.key_of[runs.before[i]] = runs.key[i];
    } else if (!valid && (i == 0 || runs.key[i - 1] < end_key)) {
      runs.begin[runs.before[runs.n]] = i;
    }
  }
}

PetscErrorCode TrsCudaReserveRuns(TrsWorkspace workspace, int64_t n, Runs *runs)
{
  PetscFunctionBegin;
  runs->n = n;
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_KEYS_SORTED, n, sizeof(*runs->key), &runs->key));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_FLAGS, n, sizeof(*runs->flags), &runs->flags));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_RUNS, 3 * (n + 1), sizeof(*runs->before), &runs->before));
  runs->begin = runs->before + n + 1;
  runs->key_of = reinterpret_cast<uint64_t *>(runs->begin + n + 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCudaFindRuns(TrsStream stream, uint64_t end_key, const Runs *runs)
{
  const dim3 blocks = TrsCudaBlocks(runs->n + 1, TRS_SCAN_THREADS);

  PetscFunctionBegin;
  CU_LAUNCH(run_flags_kernel, blocks, TRS_SCAN_THREADS, 0, TrsCudaStream(stream), *runs, end_key);
  TrsCheckLaunch();
  PetscCall(TrsCudaScan(stream, runs->n, runs->flags, runs->before));
  CU_LAUNCH(run_begin_kernel, blocks, TRS_SCAN_THREADS, 0, TrsCudaStream(stream), *runs, end_key);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsCudaBitsFor(uint64_t largest)
{
  int bits = 1;

  while (bits < 64 && largest >> bits) bits++;
  return bits;
}
