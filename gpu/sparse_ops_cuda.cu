/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Jagged tensors on the GPU: prefix sums, permutation of bag blocks, row buckets, unique ids. Twin
  of src/cpu/sparse_ops_cpu.c. If the order within bags matters, a thread handles one bag. If not,
  it handles one value.
*/
#include "gpu/compute_cuda.h"
#include "gpu/scan_cuda.h"

enum { TRS_SPARSE_THREADS = 256 };

PetscErrorCode TrsOffsetsCuda(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets)
{
  PetscFunctionBegin;
  PetscCall(TrsCudaScan(stream, n, lengths, offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- permutation of bag blocks --- */

/* The bag blocks that the result has, in its order. */
struct Blocks {
  /* [n] first bag in the input; [n + 1] first bag in the result */
  const int64_t *first_bag, *begin;
  int64_t n;
};

static __global__ void permute_lengths_kernel(Blocks blocks, const int32_t *from, int32_t *to)
{
  for (int64_t bag = TrsCudaFirst(); bag < blocks.begin[blocks.n]; bag += TrsCudaStep()) {
    const int64_t j = TrsCudaBlockOf(blocks.begin, blocks.n, bag);
    to[bag] = from[blocks.first_bag[j] + bag - blocks.begin[j]];
  }
}

/* Find the index in the result of each bag block's first value. */
static __global__ void block_values_kernel(Blocks blocks, const int64_t *offsets, int64_t *value_begin)
{
  for (int64_t j = TrsCudaFirst(); j <= blocks.n; j += TrsCudaStep())
    value_begin[j] = offsets[blocks.begin[j]];
}

/*
  One thread per value. Reads and writes each value once. Adjacent threads access adjacent values.
*/
static __global__ void permute_values_kernel(Blocks blocks, const int64_t *value_begin, TrsJagged in,
                                             TrsJagged out)
{
  const bool weighted = in.weights && out.weights;

  for (int64_t v = TrsCudaFirst(); v < value_begin[blocks.n]; v += TrsCudaStep()) {
    const int64_t j = TrsCudaBlockOf(value_begin, blocks.n, v),
                  from = in.offsets[blocks.first_bag[j]] + v - value_begin[j];
    if (out.values) out.values[v] = in.values ? in.values[from] : from;
    if (weighted) out.weights[v] = in.weights[from];
  }
}

PetscErrorCode TrsPermuteBlocksCuda(TrsStream stream, TrsWorkspace workspace, int n_in,
                                    const int64_t *block_begin, int n_out, const int *permutation,
                                    const TrsJagged *in, TrsJagged *out)
{
  int64_t *first_bag, *begin, *offsets = out->offsets, *value_begin, n_bags;
  Blocks blocks;

  PetscFunctionBegin;
  (void)n_in;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_BLOCKS, 2 * n_out + 1, sizeof(*begin), &first_bag));
  begin = first_bag + n_out;
  begin[0] = 0;
  for (int j = 0; j < n_out; j++) {
    first_bag[j] = block_begin[permutation[j]];
    begin[j + 1] = begin[j] + block_begin[permutation[j] + 1] - first_bag[j];
  }
  out->n_bags = n_bags = begin[n_out];
  if (!offsets) PetscCall(TrsCudaScratch(workspace, TRS_CUDA_RUNS, n_bags + 1, sizeof(*offsets), &offsets));
  if (n_out > 0 && n_bags > 0) {
    PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_BLOCKS, stream,
                                 (2 * n_out + 1) * static_cast<int64_t>(sizeof(*begin)), first_bag,
                                 &blocks.first_bag));
    blocks.begin = blocks.first_bag + n_out;
    blocks.n = n_out;
    PetscCall(TrsCudaScratch(workspace, TRS_CUDA_PIECES, n_out + 1, sizeof(*value_begin), &value_begin));
    CU_LAUNCH(permute_lengths_kernel, TrsCudaBlocks(n_bags, TRS_SPARSE_THREADS), TRS_SPARSE_THREADS, 0,
              TrsCudaStream(stream), blocks, in->lengths, out->lengths);
    TrsCheckLaunch();
  }
  PetscCall(TrsCudaScan(stream, n_bags, out->lengths, offsets));
  if (n_out > 0 && n_bags > 0) {
    CU_LAUNCH(block_values_kernel, TrsCudaBlocks(n_out + 1, TRS_SPARSE_THREADS), TRS_SPARSE_THREADS, 0,
              TrsCudaStream(stream), blocks, offsets, value_begin);
    CU_LAUNCH(permute_values_kernel, TrsCudaBlocks(in->n_values, TRS_SPARSE_THREADS), TRS_SPARSE_THREADS, 0,
              TrsCudaStream(stream), blocks, value_begin, *in, *out);
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- bucketize --- */

/* The rule that distributes one feature's ids to buckets, on the device. */
struct Cut {
  int64_t bucket_rows, end;
  /* index of the feature's first bound in the list of all bounds; -1 if the buckets are even */
  int64_t bounds_at;
  TrsIdBuckets keys; /* if it has buckets, ids are keys */
};

struct BucketizeJob {
  int n_buckets;
  int64_t batch, n_bags; /* batch and number of bags of the input */
  const Cut *cut;        /* [features] */
  const int64_t *bounds;
  TrsJagged in, out;
  int64_t *offsets; /* offsets of the result */
  int32_t *placed;  /* [n_buckets * n_bags] number of ids already stored for each bucket and bag */
  int64_t *unbucketize;
};

static __device__ __forceinline__ int64_t divide(int64_t id, int64_t block)
{
  if ((id | block) >> 32 == 0) return static_cast<uint32_t>(id) / static_cast<uint32_t>(block);
  return id / block;
}

static __device__ int64_t bucket_of_row(const BucketizeJob &job, const Cut &cut, int64_t id, int64_t *local)
{
  int64_t bucket;

  if (id < 0) {
    *local = id;
    return 0;
  }
  if (id >= cut.end) {
    *local = id / job.n_buckets;
    return id % job.n_buckets;
  }
  if (cut.bounds_at < 0) {
    bucket = divide(id, cut.bucket_rows);
    *local = id - bucket * cut.bucket_rows;
    return bucket;
  }
  const int64_t *bounds = job.bounds + cut.bounds_at; /* bounds may repeat */
  int low = 0, high = job.n_buckets - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (id < bounds[middle + 1])
      high = middle;
    else
      low = middle + 1;
  }
  *local = id - bounds[low];
  return low;
}

static __device__ int64_t bucket_of(const BucketizeJob &job, const Cut &cut, int64_t id, int64_t *local)
{
  int64_t bucket;

  if (cut.keys.n.value == 0) return bucket_of_row(job, cut, id, local);
  bucket = bucket_of_row(job, cut, TrsIdBucket(&cut.keys, id) * cut.keys.rows, local);
  *local = id;
  return bucket;
}

/*
  One thread per bag, so that the bag's ids keep their order. lengths and placed must be zero
  before.
*/
static __global__ void count_buckets_kernel(BucketizeJob job)
{
  for (int64_t bag = TrsCudaFirst(); bag < job.n_bags; bag += TrsCudaStep()) {
    const Cut cut = job.cut[bag / job.batch];
    int64_t local;

    for (int64_t i = job.in.offsets[bag]; i < job.in.offsets[bag + 1]; i++)
      job.out.lengths[bucket_of(job, cut, job.in.values[i], &local) * job.n_bags + bag]++;
  }
}

static __global__ void place_in_buckets_kernel(BucketizeJob job)
{
  const bool weighted = job.in.weights && job.out.weights;

  for (int64_t bag = TrsCudaFirst(); bag < job.n_bags; bag += TrsCudaStep()) {
    const Cut cut = job.cut[bag / job.batch];
    const int64_t begin = job.in.offsets[bag], end = job.in.offsets[bag + 1];

    for (int64_t i = begin; i < end; i++) {
      int64_t local;
      const int64_t place = bucket_of(job, cut, job.in.values[i], &local) * job.n_bags + bag,
                    at = job.offsets[place] + job.placed[place]++;

      job.out.values[at] = local;
      if (weighted) job.out.weights[at] = job.in.weights[i];
      if (job.unbucketize) job.unbucketize[i] = at;
    }
  }
}

/* Upload the features' rules and bounds. */
static PetscErrorCode upload_cuts(TrsStream stream, TrsWorkspace workspace, int n_features,
                                  const TrsBucketSpec *spec, BucketizeJob *job)
{
  const int n_buckets = job->n_buckets;
  int64_t *bounds, n_bounds = 0;
  Cut *cut;

  PetscFunctionBegin;
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_CUTS, n_features, sizeof(*cut), &cut));
  PetscCall(TrsCudaHostScratch(workspace, TRS_CUDA_BOUNDS, n_features * (n_buckets + INT64_C(1)),
                               sizeof(*bounds), &bounds));
  for (int f = 0; f < n_features; f++) {
    cut[f] = {spec[f].bucket_rows, spec[f].bucket_rows * n_buckets, -1, spec[f].keys};
    if (!spec[f].bounds) continue;
    cut[f].bounds_at = n_bounds;
    cut[f].end = spec[f].bounds[n_buckets];
    for (int q = 0; q <= n_buckets; q++) bounds[n_bounds++] = spec[f].bounds[q];
  }
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_CUTS, stream,
                               n_features * static_cast<int64_t>(sizeof(*cut)), cut, &job->cut));
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_BOUNDS, stream,
                               n_bounds * static_cast<int64_t>(sizeof(*bounds)), bounds, &job->bounds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NOLINTNEXTLINE(readability-function-size): the function type has many parameters */
PetscErrorCode TrsBucketizeCuda(TrsStream stream, TrsWorkspace workspace, int n_buckets, int n_features,
                                int64_t batch, const TrsBucketSpec *spec, const TrsJagged *in, TrsJagged *out,
                                int64_t *unbucketize)
{
  const int64_t n_bags = n_features * batch, n_places = n_buckets * n_bags;
  const dim3 blocks = TrsCudaBlocks(n_bags, TRS_SPARSE_THREADS);
  BucketizeJob job = {};

  PetscFunctionBegin;
  job.n_buckets = n_buckets;
  job.batch = batch;
  job.n_bags = n_bags;
  out->n_bags = n_places;
  out->n_values = in->n_values;
  job.in = *in;
  job.out = *out;
  job.offsets = out->offsets;
  job.unbucketize = unbucketize;
  PetscCall(upload_cuts(stream, workspace, n_features, spec, &job));
  if (!job.offsets)
    PetscCall(TrsCudaScratch(workspace, TRS_CUDA_RUNS, n_places + 1, sizeof(*job.offsets), &job.offsets));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_FLAGS, n_places, sizeof(*job.placed), &job.placed));
  if (n_bags > 0) {
    const size_t bytes = static_cast<size_t>(n_places) * sizeof(int32_t);

    TrsCallCUDA(cudaMemsetAsync(out->lengths, 0, bytes, TrsCudaStream(stream)));
    TrsCallCUDA(cudaMemsetAsync(job.placed, 0, bytes, TrsCudaStream(stream)));
    CU_LAUNCH(count_buckets_kernel, blocks, TRS_SPARSE_THREADS, 0, TrsCudaStream(stream), job);
    TrsCheckLaunch();
  }
  PetscCall(TrsCudaScan(stream, n_places, out->lengths, job.offsets));
  if (n_bags > 0) {
    CU_LAUNCH(place_in_buckets_kernel, blocks, TRS_SPARSE_THREADS, 0, TrsCudaStream(stream), job);
    TrsCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- unique --- */

/* Sort key of an id. All negative ids share the lowest key. */
static __device__ __forceinline__ uint64_t unique_key(int64_t id)
{
  return static_cast<uint64_t>(id < 0 ? 0 : id + 1);
}

/* The values of a call have the indices [first, n). Table t's values begin at begin[t]. */
struct UniqueIds {
  int64_t first, n;
  int n_tables;
  const int64_t *begin; /* [n_tables + 1] index of each table's first value */
  const int64_t *values;
  uint64_t *key, *sorted_key; /* [n] */
  uint32_t *item, *sorted_item;
  int32_t *flags;  /* [n] 1 if a new id begins here */
  int64_t *before; /* [n + 1] number of new ids before each value */
};

static __global__ void unique_keys_kernel(UniqueIds job)
{
  for (int64_t i = job.first + TrsCudaFirst(); i < job.n; i += TrsCudaStep()) {
    job.key[i] = unique_key(job.values[i]);
    job.item[i] = static_cast<uint32_t>(i);
  }
}

/* Make a key for each value from its table. The values are sorted by id. */
static __global__ void unique_table_keys_kernel(UniqueIds job)
{
  for (int64_t i = job.first + TrsCudaFirst(); i < job.n; i += TrsCudaStep())
    job.key[i] = static_cast<uint64_t>(TrsCudaBlockOf(job.begin, job.n_tables, job.sorted_item[i]));
}

/* Copy the ids into the order of tables. */
static __global__ void unique_gather_kernel(UniqueIds job)
{
  for (int64_t i = job.first + TrsCudaFirst(); i < job.n; i += TrsCudaStep())
    job.sorted_key[i] = unique_key(job.values[job.sorted_item[i]]);
}

/*
  Mark the first value of each distinct id. Values before the first table's values do not belong to
  the call.
*/
static __global__ void unique_flags_kernel(UniqueIds job)
{
  for (int64_t i = TrsCudaFirst(); i < job.n; i += TrsCudaStep())
    job.flags[i] = i >= job.first && (i == job.first || job.sorted_key[i] != job.sorted_key[i - 1]);
}

/* Mark each table's first value, which is always a new id. */
static __global__ void unique_tables_kernel(UniqueIds job)
{
  for (int64_t t = TrsCudaFirst(); t < job.n_tables; t += TrsCudaStep())
    if (job.begin[t] < job.begin[t + 1]) job.flags[job.begin[t]] = 1;
}

static __global__ void unique_place_kernel(UniqueIds job, int64_t *unique_values, int64_t *reverse)
{
  for (int64_t i = job.first + TrsCudaFirst(); i < job.n; i += TrsCudaStep()) {
    const int64_t at = job.before[i] + job.flags[i] - 1;
    const int64_t from = job.before[job.begin[TrsCudaBlockOf(job.begin, job.n_tables, i)]];

    if (job.flags[i]) unique_values[at] = static_cast<int64_t>(job.sorted_key[i]) - 1;
    reverse[job.sorted_item[i]] = at - from;
  }
}

static __global__ void unique_begin_kernel(UniqueIds job, int64_t *unique_begin)
{
  for (int64_t t = TrsCudaFirst(); t <= job.n_tables; t += TrsCudaStep())
    unique_begin[t] = job.before[job.begin[t]];
}

/*
  Sort by all 64 bits of the id, because the host does not know the ids. Then sort stably by table.
  Two sorts are enough for any number of tables.
*/
static PetscErrorCode sort_unique(TrsStream stream, TrsWorkspace workspace, UniqueIds *job)
{
  const int64_t first = job->first, n = job->n - first;
  const dim3 blocks = TrsCudaBlocks(n, TRS_SPARSE_THREADS);
  const cudaStream_t s = TrsCudaStream(stream);
  uint32_t *const by_table = job->item;

  PetscFunctionBegin;
  CU_LAUNCH(unique_keys_kernel, blocks, TRS_SPARSE_THREADS, 0, s, *job);
  TrsCheckLaunch();
  PetscCall(TrsCudaSortPairs(workspace, stream, n, 64, job->key + first, job->sorted_key + first,
                             job->item + first, job->sorted_item + first));
  if (job->n_tables == 1) PetscFunctionReturn(PETSC_SUCCESS);
  CU_LAUNCH(unique_table_keys_kernel, blocks, TRS_SPARSE_THREADS, 0, s, *job);
  TrsCheckLaunch();
  PetscCall(TrsCudaSortPairs(workspace, stream, n, TrsCudaBitsFor(static_cast<uint64_t>(job->n_tables)),
                             job->key + first, job->sorted_key + first, job->sorted_item + first,
                             job->item + first));
  job->item = job->sorted_item;
  job->sorted_item = by_table;
  CU_LAUNCH(unique_gather_kernel, blocks, TRS_SPARSE_THREADS, 0, s, *job);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The host waits until it has the numbers of unique ids. */
PetscErrorCode TrsUniqueCuda(TrsStream stream, TrsWorkspace workspace, int n_tables,
                             const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                             int64_t *unique_values, int64_t *reverse)
{
  const int64_t n = values_begin[n_tables];
  const dim3 blocks = TrsCudaBlocks(n, TRS_SPARSE_THREADS), threads = TRS_SPARSE_THREADS;
  const dim3 few = TrsCudaBlocks(n_tables + 1, TRS_SPARSE_THREADS);
  const cudaStream_t s = TrsCudaStream(stream);
  UniqueIds job = {};
  int64_t *answer;

  PetscFunctionBegin;
  PetscCheck(n <= UINT32_MAX, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%lld ids are too many to be made unique at once", static_cast<long long>(n));
  job.first = values_begin[0];
  job.n = n;
  job.n_tables = n_tables;
  job.values = values;
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_KEYS, n, sizeof(*job.key), &job.key));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_KEYS_SORTED, n, sizeof(*job.key), &job.sorted_key));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_ITEMS, n, sizeof(*job.item), &job.item));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_ITEMS_SORTED, n, sizeof(*job.item), &job.sorted_item));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_FLAGS, n, sizeof(*job.flags), &job.flags));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_RUNS, n + 1, sizeof(*job.before), &job.before));
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_PIECES, n_tables + 1, sizeof(*answer), &answer));
  PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_TABLES_BEGIN, stream,
                               (n_tables + 1) * static_cast<int64_t>(sizeof(*job.begin)), values_begin,
                               &job.begin));
  PetscCall(sort_unique(stream, workspace, &job));
  CU_LAUNCH(unique_flags_kernel, blocks, threads, 0, s, job);
  CU_LAUNCH(unique_tables_kernel, few, threads, 0, s, job);
  TrsCheckLaunch();
  PetscCall(TrsCudaScan(stream, n, job.flags, job.before));
  CU_LAUNCH(unique_place_kernel, blocks, threads, 0, s, job, unique_values, reverse);
  CU_LAUNCH(unique_begin_kernel, few, threads, 0, s, job, answer);
  TrsCheckLaunch();
  PetscCall(TrsCudaAnswer(workspace, stream, (n_tables + 1) * static_cast<int64_t>(sizeof(*answer)), answer,
                          unique_begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}
