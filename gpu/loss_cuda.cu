/* SPDX-License-Identifier: BSD-3-Clause */
/* The losses on the GPU. Each thread handles one sample at a time, and sums have a fixed order. */
#include "gpu/block_sum_cuda.h"
#include "gpu/compute_cuda.h"
#include "gpu/device/device_cuda.h"
#include "gpu/one_unit_cuda.h"

#include <math.h>

#define TRS_LOSS_SAMPLE static __device__ __forceinline__
#include "compute/loss_sample.h"

/* Add the sums of all threads to *loss. */
static __device__ void add_loss(double of_thread, double *sums, unsigned *counter, double *loss)
{
  double sum[1] = {of_thread};

  if (sum_of_blocks(sum, sums, counter)) *loss += sum[0];
}

/*
  The losses that have one output. They are types because a kernel cannot take a function pointer.
*/
struct Bce {
  static __device__ double of(double z, double y, double q, double *g, double *p)
  {
    return TrsBceSample(z, y, q, g, p);
  }
};
struct Mse {
  static __device__ double of(double z, double y, double q, double *g, double *p)
  {
    return TrsMseSample(z, y, q, g, p);
  }
};
struct Huber {
  static __device__ double of(double z, double y, double q, double *g, double *p)
  {
    return TrsHuberSample(z, y, q, g, p);
  }
};

static __device__ __forceinline__ float loss_scale(const TrsLossArgs &a)
{
  return a.now ? a.now->loss_scale * a.scale : a.scale;
}

/* Compute the results of sample b, whose output is z. Returns its part of the loss. */
template <class Loss>
static __device__ __forceinline__ double loss_of_sample(const TrsLossArgs &a, int64_t b, float z, float scale)
{
  const double y = a.y ? static_cast<double>(a.y[b * a.y_stride]) : nan("");
  const double weight = a.w ? static_cast<double>(a.w[b]) : 1.0;
  double g, p, loss = Loss::of(static_cast<double>(z), y, static_cast<double>(a.parameter), &g, &p);

  if (a.p) a.p[b * a.p_stride] = static_cast<float>(p);
  if (!a.y) return 0.0;
  if (!a.missing && isnan(y)) g = loss = y;
  if (a.of_sample) a.of_sample[b * a.of_sample_stride] = weight * loss;
  if (a.dz) a.dz[b * a.z_stride] = static_cast<float>(g) * (scale * static_cast<float>(weight));
  return weight * loss;
}

/* Each thread handles one sample at a time. */
template <class Loss>
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    loss_kernel(TrsLossArgs a, double *sums, unsigned *counter)
{
  const float scale = loss_scale(a);
  double sum = 0.0;

  for (int64_t b = TrsCudaFirst(); b < a.batch; b += TrsCudaStep())
    sum += loss_of_sample<Loss>(a, b, a.z[b * a.z_stride], scale);
  if (a.y) add_loss(sum, sums, counter, a.loss);
}

/*
  Compute the outputs z of a layer of one unit, and the loss from them. A thread block handles
  TRS_UNIT_SAMPLES samples: each warp computes z of TRS_UNIT_ROWS of them, then the first warp's
  threads handle one sample each. z is a.z, and is also written. Reads x once.
*/
template <class Loss>
static __global__ void __launch_bounds__(TRS_UNIT_THREADS)
    unit_loss_kernel(UnitLayer layer, TrsLossArgs a, float *z, double *sums, unsigned *counter)
{
  __shared__ float of_block[TRS_UNIT_SAMPLES];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread & 31;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * TRS_UNIT_SAMPLES, b = first + thread;
  const float own = unit_rows(layer, first + warp * TRS_UNIT_ROWS);
  double sum = 0.0;

  if (lane < TRS_UNIT_ROWS) of_block[warp * TRS_UNIT_ROWS + lane] = own;
  __syncthreads();
  if (thread < TRS_UNIT_SAMPLES && b < a.batch) {
    z[b * a.z_stride] = of_block[thread];
    sum = loss_of_sample<Loss>(a, b, of_block[thread], loss_scale(a));
  }
  if (a.y) add_loss(sum, sums, counter, a.loss);
}

/* Each thread handles one sample at a time, with all of its classes. */
static __global__ void __launch_bounds__(TRS_DENSE_THREADS)
    softmax_kernel(TrsLossArgs a, double *sums, unsigned *counter)
{
  const float of_all = loss_scale(a);
  double total = 0.0;

  for (int64_t b = TrsCudaFirst(); b < a.batch; b += TrsCudaStep()) {
    const float *const z = a.z + b * a.z_stride;
    const double y = a.y ? static_cast<double>(a.y[b * a.y_stride]) : nan("");
    const double weight = a.w ? static_cast<double>(a.w[b]) : 1.0;
    const float scale = of_all * static_cast<float>(weight);
    const bool has_label = y >= 0.0 && y < static_cast<double>(a.classes);
    const int label = has_label ? static_cast<int>(y) : -1;
    double most = static_cast<double>(z[0]), sum = 0.0;

    for (int c = 1; c < a.classes; c++) most = fmax(most, static_cast<double>(z[c]));
    for (int c = 0; c < a.classes; c++) sum += exp(static_cast<double>(z[c]) - most);
    for (int c = 0; c < a.classes; c++) {
      const double share = exp(static_cast<double>(z[c]) - most) / sum;

      if (a.p) a.p[b * a.p_stride + c] = static_cast<float>(share);
      if (a.y && a.dz)
        a.dz[b * a.z_stride + c] = has_label ? static_cast<float>(share - (c == label ? 1.0 : 0.0)) * scale
                                             : 0.0f;
    }
    const double loss = has_label ? weight * (log(sum) + most - static_cast<double>(z[label])) : 0.0;
    if (has_label) total += loss;
    if (a.y && a.of_sample) a.of_sample[b * a.of_sample_stride] = loss;
  }
  if (a.y) add_loss(total, sums, counter, a.loss);
}

/* Launch the kernel that computes both the outputs of a layer of one unit and the loss. */
static PetscErrorCode run_unit_loss(TrsStream stream, const TrsLossArgs *args,
                                    void (*kernel)(UnitLayer, TrsLossArgs, float *, double *, unsigned *))
{
  const int64_t blocks = (args->batch + TRS_UNIT_SAMPLES - 1) / TRS_UNIT_SAMPLES;
  TrsLossArgs a = *args;
  unsigned *counter = NULL;
  void *sums = NULL;

  PetscFunctionBegin;
  a.layer = NULL;
  if (blocks > 1) {
    PetscCall(TrsCudaStreamScratch(stream, blocks * (int64_t)sizeof(double), &sums));
    PetscCall(TrsCudaStreamCounters(stream, 1, &counter));
  }
  CU_LAUNCH(kernel, static_cast<unsigned>(blocks), TRS_UNIT_THREADS, 0, TrsCudaStream(stream),
            unit_of(args->layer), a, static_cast<float *>(args->layer->y.data), static_cast<double *>(sums),
            counter);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Launch the kernel of a loss. Each thread handles one sample, and each array is read or written
  once.
*/
static PetscErrorCode run_loss(TrsStream stream, const TrsLossArgs *args,
                               void (*kernel)(TrsLossArgs, double *, unsigned *))
{
  const dim3 blocks = TrsCudaBlocks(args->batch, TRS_DENSE_THREADS);
  unsigned *counter = NULL, threads = 32;
  void *sums = NULL;

  PetscFunctionBegin;
  if (args->batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  while (threads < TRS_DENSE_THREADS && threads < args->batch) threads *= 2;
  if (blocks.x > 1) {
    PetscCall(TrsCudaStreamScratch(stream, blocks.x * (int64_t)sizeof(double), &sums));
    PetscCall(TrsCudaStreamCounters(stream, 1, &counter));
  }
  CU_LAUNCH(kernel, blocks, threads, 0, TrsCudaStream(stream), *args, static_cast<double *>(sums), counter);
  TrsCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A loss of one output, which a linear layer may compute first. */
template <class Loss> static PetscErrorCode loss_of(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  if (args->batch <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (args->layer && TrsUnitTakes(args->layer)) {
    PetscCall(run_unit_loss(stream, args, unit_loss_kernel<Loss>));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (args->layer) PetscCall(TrsLinearForwardCuda(stream, args->layer));
  PetscCall(run_loss(stream, args, loss_kernel<Loss>));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBceCuda(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  PetscCall(loss_of<Bce>(stream, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMseCuda(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  PetscCall(loss_of<Mse>(stream, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHuberCuda(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  PetscCall(loss_of<Huber>(stream, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSoftmaxCuda(TrsStream stream, const TrsLossArgs *args)
{
  PetscFunctionBegin;
  PetscCall(run_loss(stream, args, softmax_kernel));
  PetscFunctionReturn(PETSC_SUCCESS);
}
