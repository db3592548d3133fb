/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Bags that several samples share, on the GPU. Twin of src/cpu/bags_cpu.c. The results do not depend
  on the order of threads.

  The kernels find distinct bags with one hash table per feature, without a sort. A bag is inserted
  at the slot of its hash, or at the next slot that is free or has an equal bag. A slot keeps the
  lowest sample that has this bag, so the order of insertion does not change the results. A group of
  8 lanes works on one bag.
*/
#include "compute/bag_hash.h"
#include "gpu/compute_cuda.h"
#include "gpu/scan_cuda.h"

enum { TRS_BAG_THREADS = 256, TRS_BAG_LANES = 8 };

/* Number of thread blocks for n bags. */
static dim3 blocks_for(int64_t n)
{
  return TrsCudaBlocks(n * TRS_BAG_LANES, TRS_BAG_THREADS);
}

static __device__ __forceinline__ int bag_lane()
{
  return static_cast<int>(threadIdx.x) % TRS_BAG_LANES;
}

/* The mask of the lanes in this thread's group. */
static __device__ __forceinline__ unsigned bag_mask()
{
  return ((1u << TRS_BAG_LANES) - 1) << (threadIdx.x % 32 - threadIdx.x % TRS_BAG_LANES);
}

/* --- distinct bags --- */

constexpr uint32_t NO_SAMPLE = 0xffffffffu; /* byte-wise fill pattern of an empty table */

/* Bag i of the call is sample i % batch of feature i / batch. */
struct UniqueJob {
  int64_t batch, n_bags;
  const int32_t *feature; /* [features] index of each feature, which is a bag block of the input */
  TrsJagged in;
  uint64_t *hash;      /* [n_bags] hash of each bag */
  uint32_t *table;     /* [features, slots] lowest sample that has the bag of each slot */
  uint64_t place_mask; /* number of slots - 1; the number is a power of 2 above the batch */
  uint32_t *place;     /* [n_bags] slot of each bag in its feature's table */
};

/* The index of bag i in the input. */
static __device__ __forceinline__ int64_t bag_of(const UniqueJob &job, int64_t i)
{
  const int64_t f = i / job.batch;
  return job.feature[f] * job.batch + i - f * job.batch;
}

static __device__ __forceinline__ uint32_t weight_bits(const TrsJagged &in, int64_t i)
{
  return in.weights ? __float_as_uint(in.weights[i]) : 0;
}

/* Hash each bag. Reads each id and weight once. */
static __global__ void hash_bags_kernel(UniqueJob job)
{
  const int lane = bag_lane();

  for (int64_t i = TrsCudaFirst() / TRS_BAG_LANES; i < job.n_bags; i += TrsCudaStep() / TRS_BAG_LANES) {
    const int64_t bag = bag_of(job, i), begin = job.in.offsets[bag], n = job.in.offsets[bag + 1] - begin;
    unsigned long long hash = 0;

    for (int64_t k = lane; k < n; k += TRS_BAG_LANES)
      hash += TrsBagHashTerm(k, job.in.values[begin + k], weight_bits(job.in, begin + k));
    for (int with = TRS_BAG_LANES / 2; with > 0; with /= 2) hash += __shfl_xor_sync(bag_mask(), hash, with);
    if (lane == 0) job.hash[i] = hash;
  }
}

/* Compare two bags. All lanes of the group must call it, and all get the result. */
static __device__ bool same_bags(const TrsJagged &in, int64_t a, int64_t b)
{
  const int64_t at_a = in.offsets[a], at_b = in.offsets[b], n = in.offsets[a + 1] - at_a;
  bool differ = false;

  if (n != in.offsets[b + 1] - at_b) return false;
  for (int64_t k = bag_lane(); k < n; k += TRS_BAG_LANES)
    differ |= in.values[at_a + k] != in.values[at_b + k] ||
              weight_bits(in, at_a + k) != weight_bits(in, at_b + k);
  return !__any_sync(bag_mask(), differ);
}

/*
  Put sample s into a slot if the slot is free. All lanes of the group get the slot's previous
  contents.
*/
static __device__ uint32_t claim(uint32_t *place, uint32_t s)
{
  uint32_t found = 0;

  if (bag_lane() == 0) {
    found = *static_cast<volatile uint32_t *>(place);
    if (found == NO_SAMPLE) found = atomicCAS(place, NO_SAMPLE, s);
  }
  return __shfl_sync(bag_mask(), found, 0, TRS_BAG_LANES);
}

/*
  Find a slot for every bag. All bags that a slot ever holds are equal, so concurrent changes of a
  slot are harmless. Reads the ids and weights of each bag once, and of each bag that it is compared
  with.
*/
static __global__ void place_bags_kernel(UniqueJob job)
{
  for (int64_t i = TrsCudaFirst() / TRS_BAG_LANES; i < job.n_bags; i += TrsCudaStep() / TRS_BAG_LANES) {
    const int64_t f = i / job.batch, first = f * job.batch, block = job.feature[f] * job.batch;
    const uint32_t s = static_cast<uint32_t>(i - first);
    const uint64_t hash = job.hash[i];
    uint32_t *table = job.table + f * (job.place_mask + 1);
    uint64_t at = hash & job.place_mask;

    for (;;) {
      const uint32_t found = claim(table + at, s);

      if (found == NO_SAMPLE) break;
      if (job.hash[first + found] == hash && same_bags(job.in, block + found, block + s)) {
        if (s < found && bag_lane() == 0) atomicMin(table + at, s);
        break;
      }
      at = (at + 1) & job.place_mask;
    }
    if (bag_lane() == 0) job.place[i] = static_cast<uint32_t>(at);
  }
}

/* The first sample that has a bag equal to bag i. */
static __device__ __forceinline__ int64_t first_sample(const UniqueJob &job, int64_t f, int64_t i)
{
  return job.table[f * (job.place_mask + 1) + job.place[i]];
}

static __global__ void first_flags_kernel(UniqueJob job, int32_t *flags)
{
  for (int64_t i = TrsCudaFirst(); i < job.n_bags; i += TrsCudaStep()) {
    const int64_t f = i / job.batch;
    flags[i] = first_sample(job, f, i) == i - f * job.batch;
  }
}

/*
  before [n_bags + 1]: before[i] counts the bags before bag i that have no equal bag before them in
  their feature.
*/
static __global__ void list_bags_kernel(UniqueJob job, const int64_t *before, TrsBagLists lists,
                                        int64_t *inverse)
{
  for (int64_t i = TrsCudaFirst(); i < job.n_bags; i += TrsCudaStep()) {
    const int64_t f = i / job.batch, first = f * job.batch, s = i - first, sample = first_sample(job, f, i),
                  number = before[first + sample] - before[first];

    inverse[i] = number;
    if (sample == s) lists.sample[first + number] = static_cast<int32_t>(s);
    if (s == 0) lists.n[f] = before[first + job.batch] - before[first];
  }
}

/* Allocate the job's memory, and empty the tables. */
static PetscErrorCode reserve_table(TrsStream stream, TrsWorkspace workspace, int n_features, UniqueJob *job)
{
  uint64_t places = 16;

  PetscFunctionBegin;
  while (places < 2 * static_cast<uint64_t>(job->batch)) places *= 2;
  job->place_mask = places - 1;
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_KEYS, job->n_bags, sizeof(*job->hash), &job->hash));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_ITEMS, job->n_bags, sizeof(*job->place), &job->place));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_ITEMS_SORTED, n_features * static_cast<int64_t>(places),
                           sizeof(*job->table), &job->table));
  TrsCallCUDA(cudaMemsetAsync(job->table, 0xff,
                              static_cast<size_t>(n_features) * places * sizeof(*job->table),
                              TrsCudaStream(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Scratch: 24 bytes for each bag, and 4 bytes for each slot of the tables. There are 2 to 4 slots
  for each bag.
*/
PetscErrorCode TrsUniqueBagsCuda(TrsStream stream, TrsWorkspace workspace, int n_features, const int *feature,
                                 const TrsJagged *in, const TrsBagLists *lists, int64_t *inverse)
{
  const cudaStream_t s = TrsCudaStream(stream);
  const dim3 threads = TRS_BAG_THREADS;
  UniqueJob job = {};
  int64_t *before;
  int32_t *flags;

  PetscFunctionBegin;
  if (n_features <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  job.batch = lists->batch;
  job.n_bags = n_features * lists->batch;
  job.in = *in;
  if (job.n_bags == 0) {
    TrsCallCUDA(cudaMemsetAsync(lists->n, 0, static_cast<size_t>(n_features) * sizeof(*lists->n), s));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_BAG_FEATURES, stream,
                               n_features * static_cast<int64_t>(sizeof(*feature)), feature, &job.feature));
  PetscCall(reserve_table(stream, workspace, n_features, &job));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_FLAGS, job.n_bags, sizeof(*flags), &flags));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_RUNS, job.n_bags + 1, sizeof(*before), &before));
  CU_LAUNCH(hash_bags_kernel, blocks_for(job.n_bags), threads, 0, s, job);
  CU_LAUNCH(place_bags_kernel, blocks_for(job.n_bags), threads, 0, s, job);
  CU_LAUNCH(first_flags_kernel, TrsCudaBlocks(job.n_bags, TRS_BAG_THREADS), threads, 0, s, job, flags);
  TrsCheckLaunch();
  PetscCall(TrsCudaScan(stream, job.n_bags, flags, before));
  CU_LAUNCH(list_bags_kernel, TrsCudaBlocks(job.n_bags, TRS_BAG_THREADS), threads, 0, s, job, before, *lists,
            inverse);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- chosen bags --- */

struct TakeJob {
  int n_out;
  /* [n_out] bag block of the input, and list of its bags, for each bag block of out */
  const int32_t *block, *list;
  TrsBagLists lists;
  TrsJagged in, out;
  /* [n_out + 1] first bag of each bag block of out; NULL if block j begins at bag j * batch */
  int64_t *begin;
};

/*
  Find the source of bag k in bag block j of out, and its position in out. False if the block has no
  bag k.
*/
static __device__ __forceinline__ bool find_bag(const TakeJob &job, int64_t i, int64_t *from, int64_t *to)
{
  const int64_t B = job.lists.batch, j = i / B, k = i - j * B, list = job.list[j];

  if (k >= job.lists.n[list]) return false;
  *from = job.block[j] * B + (job.lists.sample ? job.lists.sample[list * B + k] : k);
  *to = (job.begin ? job.begin[j] : j * B) + k;
  return true;
}

static __global__ void list_sizes_kernel(TakeJob job, int32_t *sizes)
{
  for (int64_t j = TrsCudaFirst(); j < job.n_out; j += TrsCudaStep())
    sizes[j] = static_cast<int32_t>(job.lists.n[job.list[j]]);
}

/* One thread per bag. The lengths of out must be zero before. */
static __global__ void take_lengths_kernel(TakeJob job)
{
  for (int64_t i = TrsCudaFirst(); i < job.n_out * job.lists.batch; i += TrsCudaStep()) {
    int64_t from, to;

    if (find_bag(job, i, &from, &to))
      job.out.lengths[to] = static_cast<int32_t>(job.in.offsets[from + 1] - job.in.offsets[from]);
  }
}

/* One group of lanes per bag. Reads and writes each id of the bag once. */
static __global__ void take_values_kernel(TakeJob job)
{
  const bool weighted = job.in.weights && job.out.weights;

  for (int64_t i = TrsCudaFirst() / TRS_BAG_LANES; i < job.n_out * job.lists.batch;
       i += TrsCudaStep() / TRS_BAG_LANES) {
    int64_t from, to;

    if (!find_bag(job, i, &from, &to)) continue;
    const int64_t begin = job.in.offsets[from], n = job.in.offsets[from + 1] - begin,
                  at = job.out.offsets[to];
    for (int64_t k = bag_lane(); k < n; k += TRS_BAG_LANES) {
      job.out.values[at + k] = job.in.values[begin + k];
      if (weighted) job.out.weights[at + k] = job.in.weights[begin + k];
    }
  }
}

static __global__ void limits_kernel(TakeJob job, int64_t *limits)
{
  for (int64_t j = TrsCudaFirst(); j <= job.n_out; j += TrsCudaStep()) {
    if (j < job.n_out) limits[j] = job.begin[j + 1] - job.begin[j];
    limits[job.n_out + j] = job.out.offsets[job.begin[j]];
  }
}

/*
  Upload the call's arrays of bag blocks and lists. Each kind of call has its own upload array. So
  the next batch finds the same contents there and need not upload them again.
*/
static PetscErrorCode upload_blocks(TrsStream stream, TrsWorkspace workspace, const int *block,
                                    const int *list, bool padded, TakeJob *job)
{
  const int which = TRS_CUDA_BAG_BLOCKS + (padded ? 1 : 0);
  int32_t *both, *there;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, which, 2 * job->n_out, sizeof(*both), &both));
  for (int j = 0; j < job->n_out; j++) {
    both[j] = block[j];
    both[job->n_out + j] = list[j];
  }
  PetscCall(TrsCudaUploadArray(workspace, which, stream, 2 * job->n_out * static_cast<int64_t>(sizeof(*both)),
                               both, &there));
  job->block = there;
  job->list = there + job->n_out;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the first bag of each bag block in out. Each block is as long as its list. */
static PetscErrorCode find_blocks(TrsStream stream, TrsWorkspace workspace, TakeJob *job)
{
  int64_t *begin;
  int32_t *sizes;

  PetscFunctionBegin;
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_FLAGS, job->n_out, sizeof(*sizes), &sizes));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_PIECES, job->n_out + 1, sizeof(*begin), &begin));
  CU_LAUNCH(list_sizes_kernel, TrsCudaBlocks(job->n_out, TRS_BAG_THREADS), TRS_BAG_THREADS, 0,
            TrsCudaStream(stream), *job, sizes);
  TrsCheckLaunch();
  PetscCall(TrsCudaScan(stream, job->n_out, sizes, begin));
  job->begin = begin;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTakeBagsCuda(TrsStream stream, TrsWorkspace workspace, int n_out, const int *block,
                               const int *list, const TrsBagLists *lists, const TrsJagged *in, TrsJagged *out,
                               int64_t *limits)
{
  const int64_t n_bags = n_out * lists->batch;
  const cudaStream_t s = TrsCudaStream(stream);
  TakeJob job = {};

  PetscFunctionBegin;
  job.n_out = n_out;
  job.lists = *lists;
  job.in = *in;
  job.out = *out;
  PetscCall(upload_blocks(stream, workspace, block, list, !limits, &job));
  if (limits) PetscCall(find_blocks(stream, workspace, &job));
  if (n_bags > 0) {
    TrsCallCUDA(cudaMemsetAsync(out->lengths, 0, static_cast<size_t>(n_bags) * sizeof(*out->lengths), s));
    CU_LAUNCH(take_lengths_kernel, TrsCudaBlocks(n_bags, TRS_BAG_THREADS), TRS_BAG_THREADS, 0, s, job);
    TrsCheckLaunch();
  }
  PetscCall(TrsCudaScan(stream, n_bags, out->lengths, out->offsets));
  if (n_bags > 0) CU_LAUNCH(take_values_kernel, blocks_for(n_bags), TRS_BAG_THREADS, 0, s, job);
  if (limits)
    CU_LAUNCH(limits_kernel, TrsCudaBlocks(n_out + 1, TRS_BAG_THREADS), TRS_BAG_THREADS, 0, s, job, limits);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- offsets of padded features --- */

/*
  begin [n_features + 1]: index of each feature's first bag. Each thread reads and writes one
  offset.
*/
static __global__ void pad_offsets_kernel(int n_features, int64_t batch, const int64_t *begin,
                                          const int64_t *offsets, int64_t *to)
{
  for (int64_t i = TrsCudaFirst(); i <= n_features * batch; i += TrsCudaStep()) {
    const int64_t f = batch > 0 ? i / batch : n_features, bag = begin[f] + i - f * batch;
    to[i] = offsets[f < n_features && bag > begin[f + 1] ? begin[f + 1] : bag];
  }
}

PetscErrorCode TrsPadOffsetsCuda(TrsStream stream, TrsWorkspace workspace, int n_features,
                                 const int64_t *strides, int64_t batch, const int64_t *offsets, int64_t *to)
{
  int64_t *begin, *there;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_STRIDES, n_features + 1, sizeof(*begin), &begin));
  begin[0] = 0;
  for (int f = 0; f < n_features; f++) begin[f + 1] = begin[f] + strides[f];
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_STRIDES, stream,
                               (n_features + 1) * static_cast<int64_t>(sizeof(*begin)), begin, &there));
  CU_LAUNCH(pad_offsets_kernel, TrsCudaBlocks(n_features * batch + 1, TRS_BAG_THREADS), TRS_BAG_THREADS, 0,
            TrsCudaStream(stream), n_features, batch, there, offsets, to);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
