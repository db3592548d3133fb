/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Streams and events of the CUDA device, for the other files of gpu/. A TrsStream is a cudaStream_t,
  a TrsEvent is a cudaEvent_t, and a TrsGraph is a cudaGraphExec_t.
*/
#pragma once

#include "device/device.h"

#include <cuda_runtime_api.h>

static inline cudaStream_t TrsStreamCuda(TrsStream stream)
{
  return (cudaStream_t)(void *)stream;
}

static inline cudaGraphExec_t TrsGraphCuda(TrsGraph graph)
{
  return (cudaGraphExec_t)(void *)graph;
}

static inline cudaEvent_t TrsEventCuda(TrsEvent event)
{
  return (cudaEvent_t)(void *)event;
}

/*
  Like the device's alloc(), but the memory must be written before it is read. compute-sanitizer's
  initcheck finds reads of memory that was never written. Not collective.
*/
PETSC_EXTERN PetscErrorCode TrsCudaAllocUnset(int64_t bytes, void **pointer);

/* Check if the stream's operations are captured instead of run. */
PETSC_EXTERN PetscErrorCode TrsCudaIsCapturing(TrsStream stream, PetscBool *capturing);

/* The host waits for an event, and makes the checks of TrsCudaWhileWaiting() meanwhile. */
PETSC_EXTERN PetscErrorCode TrsCudaEventWait(cudaEvent_t event);

/*
  Register `check`. It is called repeatedly while the host waits for a stream, with the time at
  which the wait began (MPI_Wtime). A stream that waits for other ranks may never end, and a blocked
  host would not find out why. If check raises an error, the wait ends. Not collective.
*/
void TrsCudaWhileWaiting(PetscErrorCode (*check)(double start_s));

/*
  Counters for kernels on the stream: n zeros, which each kernel must reset to zero. Like
  TrsCudaStreamScratch(), but in separate memory.
*/
PETSC_EXTERN PetscErrorCode TrsCudaStreamCounters(TrsStream stream, int64_t n, unsigned **counters);

/*
  Scratch memory for the kernels on a stream. They run one after the other, so all of them use the
  same memory. It grows if needed, and exists until the stream is destroyed. Not collective. Errors:
  MEMORY.
*/
PETSC_EXTERN PetscErrorCode TrsCudaStreamScratch(TrsStream stream, int64_t bytes, void **scratch);
