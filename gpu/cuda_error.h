/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Call a CUDA function and translate its error. The message names the call. A failed allocation
  gives TRS_ERR_MEMORY, any other error TRS_ERR_UNAVAILABLE.
*/
#pragma once

#include <cuda_runtime_api.h>
#include <petscsys.h>

#if defined(__cplusplus)
extern "C" {
#endif
#include "core/error.h"
#if defined(__cplusplus)
}
#endif

#define TrsCallCUDA(...) \
  do { \
    const cudaError_t trs_cuda_error_ = (__VA_ARGS__); \
    PetscCheck(trs_cuda_error_ == cudaSuccess, PETSC_COMM_SELF, \
               trs_cuda_error_ == cudaErrorMemoryAllocation ? TRS_ERR_MEMORY : TRS_ERR_UNAVAILABLE, \
               "CUDA: %s (%s) from %s", cudaGetErrorString(trs_cuda_error_), \
               cudaGetErrorName(trs_cuda_error_), #__VA_ARGS__); \
  } while (0)

/*
  Must follow each launch. It reports an invalid launch configuration, or an error of an earlier
  kernel.
*/
#define TrsCheckLaunch() TrsCallCUDA(cudaGetLastError())
