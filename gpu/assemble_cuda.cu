/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A batch of samples on the GPU. Twin of src/cpu/assemble.c. The rows arrive as they lie in the
  file: ids have 4 bytes if the file stores 4-byte ids, and the lengths of one sample are adjacent.
  Bytes moved: each length and id is read once and written to the batch once, with 8 bytes per id;
  plus one offset and one begin index for each bag.
*/
#include "gpu/compute_cuda.h"
#include "gpu/scan_cuda.h"

/*
  In the first kernel a thread works through the keys of a sample, so blocks are small. In the
  second kernel a warp works on 32 adjacent bags of a feature.
*/
enum { TRS_LENGTHS_THREADS = 64, TRS_PLACE_THREADS = 256, TRS_WARP = 32 };

/* The arguments of both kernels, on the device. */
struct SamplesJob {
  TrsSamples samples;
  int n_features;
  const TrsSampleFeature *feature; /* [n_features] description of each feature */
  TrsJagged out;
  int64_t *from; /* [n_features, B] index of each bag's first id among the ids of the samples */
  int32_t *odd;  /* set to 1 if an id is invalid or a bag is too long */
};

static __global__ void place_lengths_kernel(SamplesJob job)
{
  const TrsSamples &samples = job.samples;
  const int n = samples.n_keys;
  bool odd = false;

  for (int64_t b = TrsCudaFirst(); b < samples.batch; b += TrsCudaStep()) {
    const int64_t sample = samples.sample ? __ldg(samples.sample + b) : b;
    int64_t at = __ldg(samples.start + sample);

    for (int k = 0; k < n; k++) {
      const int32_t length = __ldg(samples.lengths + sample * n + k);

      for (int f = __ldg(samples.first + k); f >= 0; f = __ldg(&job.feature[f].next)) {
        const int32_t most = __ldg(&job.feature[f].max_length);

        job.out.lengths[f * samples.batch + b] = length;
        job.from[f * samples.batch + b] = at;
        odd = odd || (most > 0 && length > most);
      }
      at += length;
    }
  }
  if (odd) atomicMax(job.odd, 1);
}

static __device__ __forceinline__ int64_t id_at(const TrsSamples &samples, int64_t at)
{
  if (samples.value_bytes == sizeof(int32_t)) return __ldg(static_cast<const int32_t *>(samples.values) + at);
  return __ldg(static_cast<const int64_t *>(samples.values) + at);
}

/*
  Write the ids of 32 adjacent bags to the batch. The bag of this lane has `length` ids, which begin
  at index `from` of the input. In the batch the ids of all 32 bags are contiguous from index `to`
  on. So adjacent lanes write adjacent ids, even if these ids belong to different bags.
*/
static __device__ __forceinline__ void place_bags(const SamplesJob &job, const TrsSampleFeature &feature,
                                                  int32_t length, int64_t from, int64_t to, PetscBool *odd)
{
  const unsigned all = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % TRS_WARP;
  const int64_t rows = feature.rows;
  const TrsIdMapKind kind = feature.map.kind;
  int64_t end = length;

  for (int step = 1; step < TRS_WARP; step *= 2) {
    const int64_t before = __shfl_up_sync(all, end, step);
    if (lane >= step) end += before;
  }
  const int64_t total = __shfl_sync(all, end, TRS_WARP - 1), shift = from + length - end;
  for (int64_t begin = 0; begin < total; begin += TRS_WARP) {
    const int64_t i = begin + lane;
    int bag = 0; /* the first bag that ends after id i */

    for (int step = TRS_WARP / 2; step > 0; step /= 2)
      if (__shfl_sync(all, end, bag + step - 1) <= i) bag += step;
    const int64_t at = i + __shfl_sync(all, shift, bag);
    if (i >= total) continue;
    job.out.values[to + i] = TrsSampleRow(&feature.map, kind, rows, id_at(job.samples, at), odd);
    if (job.samples.weights) job.out.weights[to + i] = __ldg(job.samples.weights + at);
  }
}

static __global__ void place_ids_kernel(SamplesJob job)
{
  const int64_t batch = job.samples.batch, tiles = (batch + TRS_WARP - 1) / TRS_WARP;
  const int lane = static_cast<int>(threadIdx.x) % TRS_WARP;
  PetscBool odd = PETSC_FALSE;

  for (int64_t t = TrsCudaFirst() / TRS_WARP; t < job.n_features * tiles; t += TrsCudaStep() / TRS_WARP) {
    const int f = static_cast<int>(t / tiles);
    const int64_t first = t % tiles * TRS_WARP, bag = f * batch + first + lane;
    const bool there = first + lane < batch;

    place_bags(job, job.feature[f], there ? job.out.lengths[bag] : 0, there ? job.from[bag] : 0,
               job.out.offsets[bag - lane], &odd);
  }
  if (odd) atomicMax(job.odd, 1);
}

PetscErrorCode TrsAssembleCuda(TrsStream stream, TrsWorkspace workspace, const TrsSamples *samples,
                               int n_features, const TrsSampleFeature *features, TrsJagged *out, int32_t *odd)
{
  const int64_t n_bags = n_features * samples->batch;
  SamplesJob job = {};
  dim3 blocks;

  PetscFunctionBegin;
  out->n_bags = n_bags;
  job.samples = *samples;
  job.n_features = n_features;
  job.out = *out;
  PetscCall(TrsCudaScratch(workspace, TRS_CUDA_FLAGS, 1, sizeof(*job.odd), &job.odd));
  TrsCallCUDA(cudaMemsetAsync(job.odd, 0, sizeof(*job.odd), TrsCudaStream(stream)));
  if (n_bags > 0) {
    PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_SAMPLE_KEYS, stream,
                                 samples->n_keys * static_cast<int64_t>(sizeof(int)), samples->first,
                                 &job.samples.first));
    PetscCall(TrsCudaUploadArray(workspace, TRS_CUDA_SAMPLE_FEATURES, stream,
                                 n_features * static_cast<int64_t>(sizeof(*features)), features,
                                 &job.feature));
    PetscCall(TrsCudaScratch(workspace, TRS_CUDA_PLACES, n_bags, sizeof(*job.from), &job.from));
    CU_LAUNCH(place_lengths_kernel, TrsCudaBlocks(samples->batch, TRS_LENGTHS_THREADS), TRS_LENGTHS_THREADS,
              0, TrsCudaStream(stream), job);
    TrsCheckLaunch();
  }
  PetscCall(TrsCudaScan(stream, n_bags, out->lengths, out->offsets));
  if (out->n_values > 0) {
    PetscCall(TrsCudaResidentBlocks(place_ids_kernel, n_bags, TRS_PLACE_THREADS, 0, &blocks));
    CU_LAUNCH(place_ids_kernel, blocks, TRS_PLACE_THREADS, 0, TrsCudaStream(stream), job);
    TrsCheckLaunch();
  }
  TrsCallCUDA(cudaMemcpyAsync(odd, job.odd, sizeof(*odd), cudaMemcpyDeviceToHost, TrsCudaStream(stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
