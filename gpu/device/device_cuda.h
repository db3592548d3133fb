/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Streams and events of the CUDA device for the other files of gpu/. A TrsStream is a cudaStream_t,
  a TrsEvent a cudaEvent_t, a TrsGraph a cudaGraphExec_t.
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
  alloc() for memory that must be written before it is read. compute-sanitizer's initcheck finds
  reads of unwritten memory. Not collective.
*/
PETSC_EXTERN PetscErrorCode TrsCudaAllocUnset(int64_t bytes, void **pointer);

/* Check if the stream's operations are captured instead of run. */
PETSC_EXTERN PetscErrorCode TrsCudaIsCapturing(TrsStream stream, PetscBool *capturing);

/* Let the host wait for an event, with the checks of TrsCudaWhileWaiting(). */
PETSC_EXTERN PetscErrorCode TrsCudaEventWait(cudaEvent_t event);

/*
  Register `check`, which is called repeatedly while the host waits for a stream, with the time at
  which the wait began (MPI_Wtime). If other ranks hold up a stream, it may never end, and a blocked
  host would not find out why. An error of check ends the wait. Not collective.
*/
void TrsCudaWhileWaiting(PetscErrorCode (*check)(double start_s));

/*
  Counters for kernels on the stream: n zeros, which a kernel must reset to zero. Otherwise as
  TrsCudaStreamScratch(), in separate memory.
*/
PETSC_EXTERN PetscErrorCode TrsCudaStreamCounters(TrsStream stream, int64_t n, unsigned **counters);

/*
  Memory for kernels on the stream. The last kernel that used it is done when the next kernel runs.
  It grows, and exists until the stream is destroyed. Not collective. Errors: MEMORY.
*/
PETSC_EXTERN PetscErrorCode TrsCudaStreamScratch(TrsStream stream, int64_t bytes, void **scratch);
