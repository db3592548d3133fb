/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and events of the CUDA device, to the other files of gpu/: a TrsStream is a cudaStream_t, a TrsEvent a cudaEvent_t. */
#pragma once

#include "device/device.h"

#include <cuda_runtime_api.h>

static inline cudaStream_t TrsStreamCuda(TrsStream stream)
{
  return (cudaStream_t)(void *)stream;
}

static inline cudaEvent_t TrsEventCuda(TrsEvent event)
{
  return (cudaEvent_t)(void *)event;
}

/* alloc() of memory that nobody may read before it was written, so that whoever does is found (compute-sanitizer's initcheck). Not collective. */
PetscErrorCode TrsCudaAllocUnset(int64_t bytes, void **pointer);

/* The host waits for an event, as for a stream: see TrsCudaWhileWaiting(). */
PetscErrorCode TrsCudaEventWait(cudaEvent_t event);

/*
  While the host waits for a stream, `check` is called again and again with the time the wait began (MPI_Wtime): what other ranks hold up may never end,
  and a blocked host would not learn why. An error of check ends the wait. Not collective.
*/
void TrsCudaWhileWaiting(PetscErrorCode (*check)(double start_s));

/* n counters for kernels on the stream: zeros, which the kernel leaves as zeros. As scratch otherwise, but other memory. */
PETSC_EXTERN PetscErrorCode TrsCudaStreamCounters(TrsStream stream, int64_t n, unsigned **counters);

/* Memory for kernels on the stream: the last user is done when the next one runs. Grows, then stays until the stream is destroyed. Not collective. Errors: MEMORY */
PETSC_EXTERN PetscErrorCode TrsCudaStreamScratch(TrsStream stream, int64_t bytes, void **scratch);
