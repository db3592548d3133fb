/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Every .cu file must include this header first. It provides the CUDA language or its stand-in on a
  CPU (regression/cuda_on_cpu), PETSc's error handling, and the types that kernels use.

  CUDA and the stand-in differ in two points, for which sources use macros. A launch is
  CU_LAUNCH(kernel, grid, block, shared bytes, stream, arguments...), where the name of a template
  instance is put in parentheses; it may be timed (device/kernel_times.h). Dynamic shared memory is
  CU_DYN_SHARED(type, name). Sources must not use <<<>>>. Inline PTX is only in small functions that
  also have a form for the stand-in (wide_cuda.h, tensor_cuda.h).
*/
#pragma once

#include <cuda_runtime.h>
#include <petscsys.h>

extern "C" {
#include "compute/compute_ops.h"
#include "device/kernel_times.h"
}
#include "gpu/cuda_error.h"

#if defined(__CUDACC__)
  #define CU_START(kernel, grid, block, shared, stream, ...) \
    kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
  #define CU_DYN_SHARED(T, name) \
    extern __shared__ __align__(16) unsigned char name##_bytes[]; \
    T *name = reinterpret_cast<T *>(name##_bytes)
#endif

#define CU_LAUNCH(kernel, grid, block, shared, stream, ...) \
  do { \
    PetscCall(TrsKernelBegin(#kernel, 0, 0, reinterpret_cast<TrsStream>(stream))); \
    CU_START(kernel, grid, block, shared, stream, __VA_ARGS__); \
    PetscCall(TrsKernelEnd(reinterpret_cast<TrsStream>(stream))); \
  } while (0)

/* Call a library that launches kernels of its own. `stream` is a TrsStream. */
#define CU_LIBRARY(name, stream, ...) \
  do { \
    PetscCall(TrsKernelBegin(name, 0, 0, stream)); \
    TrsCallCUDA(__VA_ARGS__); \
    PetscCall(TrsKernelEnd(stream)); \
  } while (0)

/* A TrsStream is a cudaStream_t. */
static inline cudaStream_t TrsCudaStream(TrsStream stream)
{
  return reinterpret_cast<cudaStream_t>(stream);
}

/*
  Number of thread blocks of `threads` threads for a grid-stride loop over n elements. It is at
  least 1, and at most as many as keep any GPU busy.
*/
static inline dim3 TrsCudaBlocks(int64_t n, int threads)
{
  const int64_t blocks = (n + threads - 1) / threads, most = 132 * 32;

  return dim3(static_cast<unsigned>(blocks < 1 ? 1 : blocks > most ? most : blocks));
}

/*
  Like TrsCudaBlocks(), but at most as many thread blocks of this kernel as the GPU holds at once.
*/
template <class Kernel>
static inline PetscErrorCode TrsCudaResidentBlocks(Kernel *kernel, int64_t n, int threads, int shared_bytes,
                                                   dim3 *blocks)
{
  int device, multiprocessors, each;

  PetscFunctionBegin;
  TrsCallCUDA(cudaGetDevice(&device));
  TrsCallCUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  TrsCallCUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads,
                                                            static_cast<size_t>(shared_bytes)));
  *blocks = TrsCudaBlocks(n, threads);
  blocks->x = PetscMin(blocks->x, static_cast<unsigned>(PetscMax(1, multiprocessors * each)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The first index of this thread in a grid-stride loop. TrsCudaStep() is the distance to its next
  index.
*/
static __device__ __forceinline__ int64_t TrsCudaFirst()
{
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ int64_t TrsCudaStep()
{
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

static __device__ __forceinline__ float sigmoid(float x)
{
  return 1.0f / (1.0f + expf(-x));
}
