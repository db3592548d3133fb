/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Streams and events of the CUDA device for the other files of gpu/. A TrsStream is a cudaStream_t,
  a TrsEvent a cudaEvent_t,
  a TrsGraph a cudaGraphExec_t.
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
  alloc() of memory that must be written before it is read. compute-sanitizer's initcheck finds
  reads of memory that was not written. Not collective.
*/
PETSC_EXTERN PetscErrorCode TrsCudaAllocUnset(int64_t bytes, void **pointer);

/* Are operations of the stream captured instead of run? */
PETSC_EXTERN PetscErrorCode TrsCudaIsCapturing(TrsStream stream, PetscBool *capturing);

/* Wait on the host for an event, as for a stream: see TrsCudaWhileWaiting(). */
PETSC_EXTERN PetscErrorCode TrsCudaEventWait(cudaEvent_t event);

/*
  Register `check`, which is called again and again while the host waits for a stream, with the time
  at which the wait began (MPI_Wtime). A stream that other ranks hold up may never end, and a
  blocked host would not learn why. An error of check ends the wait. Not collective.
*/
void TrsCudaWhileWaiting(PetscErrorCode (*check)(double start_s));

/*
  Counters for kernels on the stream: n zeros, which the kernel must leave as zeros. Everything else
  is as for TrsCudaStreamScratch(), in other memory.
*/
PETSC_EXTERN PetscErrorCode TrsCudaStreamCounters(TrsStream stream, int64_t n, unsigned **counters);

/*
  Memory for kernels on the stream. The kernel that used it last is done when the next one runs. It
  grows, and stays until the stream is destroyed. Not collective. Errors: MEMORY.
*/
PETSC_EXTERN PetscErrorCode TrsCudaStreamScratch(TrsStream stream, int64_t bytes, void **scratch);
