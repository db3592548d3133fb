/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Scratch memory for the GPU's kernels, and the upload of small host arrays (tables, offsets of bag
  blocks) to the device. Like every TrsWorkspace, a workspace belongs to one stream at a time.
  Memory only grows: after the largest call it is not allocated again.
*/
#pragma once

#include "compute/compute_ops.h"

/* Scratch arrays that one call may use at the same time. */
enum {
  TRS_CUDA_KEYS,
  TRS_CUDA_KEYS_SORTED,
  TRS_CUDA_ITEMS,
  TRS_CUDA_ITEMS_SORTED,
  TRS_CUDA_SORT,
  TRS_CUDA_FLAGS,
  TRS_CUDA_RUNS,
  TRS_CUDA_PIECES,
  TRS_CUDA_SUMS,
  TRS_CUDA_PLACES,
  TRS_CUDA_PLACES_UNSORTED,
  TRS_CUDA_CLASS_RUNS,
  TRS_CUDA_LOCATIONS, /* locations of rows in a cache */
  TRS_CUDA_MISSES,
  TRS_CUDA_EVICTED,
  TRS_CUDA_N_SCRATCH
};

/*
  Small arrays that are uploaded to the device. Each kind of call has its own arrays. So the next
  step finds them on the device unchanged.
*/
enum {
  TRS_CUDA_BLOCKS,
  TRS_CUDA_CUTS,
  TRS_CUDA_BOUNDS,
  TRS_CUDA_TABLES_BEGIN,
  TRS_CUDA_LOOKUP, /* three arrays, one for each LookupKind */
  TRS_CUDA_TABLES = TRS_CUDA_LOOKUP + 3,
  TRS_CUDA_FEATURES,
  TRS_CUDA_OUT_COLUMNS,
  TRS_CUDA_CLASSES,
  TRS_CUDA_CACHE_TABLES,
  TRS_CUDA_CACHE_FEATURES,
  TRS_CUDA_LISTS,
  TRS_CUDA_BAG_FEATURES,
  TRS_CUDA_BAG_BLOCKS, /* one more array follows, for padded bag blocks */
  TRS_CUDA_STRIDES = TRS_CUDA_BAG_BLOCKS + 2,
  TRS_CUDA_COPIES,
  TRS_CUDA_SAMPLE_KEYS,
  TRS_CUDA_SAMPLE_FEATURES,
  TRS_CUDA_N_UPLOADS
};

/*
  Number of pinned copies of an array, which are used in turn. A step can upload an array this often
  before the host must wait for the device.
*/
enum { TRS_CUDA_IN_TURN = 4 };

typedef struct {
  /* Pinned. The current copy equals the device's array as soon as the enqueued copies are done. */
  void *host[TRS_CUDA_IN_TURN];
  int64_t capacity_bytes[TRS_CUDA_IN_TURN];
  TrsEvent copied[TRS_CUDA_IN_TURN]; /* after this event the pinned copy may be overwritten */
  int current;
  TrsDeviceBuffer device;
  int64_t bytes;
} TrsCudaUpload;

struct TrsWorkspaceImpl {
  TrsDeviceBuffer scratch[TRS_CUDA_N_SCRATCH];
  TrsCudaUpload upload[TRS_CUDA_N_UPLOADS];
  TrsBuffer host[TRS_CUDA_N_UPLOADS]; /* memory in which a call builds the contents of each array */
  /* pinned memory for results that a kernel returns to the host */
  void *answer;
  int64_t answer_bytes;
};

#if defined(__cplusplus)
extern "C" {
#endif

/*
  Get device memory for n elements in one of the workspace's scratch arrays. The memory still has
  the contents of its last use.
*/
PetscErrorCode TrsCudaScratch(TrsWorkspace workspace, int which, int64_t n, size_t size,
                              void *pointer_to_pointer);

/* Get host memory for n elements, to build the contents of upload array `which`. */
PetscErrorCode TrsCudaHostScratch(TrsWorkspace workspace, int which, int64_t n, size_t size,
                                  void *pointer_to_pointer);

/*
  TrsCudaUploadArray - Copy a small host array to the device. The copy is valid for kernels enqueued
  on the stream from now on, until the next upload of this array.

  Normally the host does not wait. If the array equals the last upload, it is already on the device;
  tables and bag blocks seldom change between steps. A changed array is copied to pinned memory
  first. The host waits only if the copy four uploads ago is not done yet. Arrays that change with
  the batch are uploaded twice per step, and the host is at most one step ahead of the device.
*/
PetscErrorCode TrsCudaUploadArray(TrsWorkspace workspace, int which, TrsStream stream, int64_t bytes,
                                  const void *host, void *pointer_to_pointer);

/*
  Copy device memory to the host and wait for the copy. Kernels use this to return results to the
  host.
*/
PetscErrorCode TrsCudaAnswer(TrsWorkspace workspace, TrsStream stream, int64_t bytes, const void *device,
                             void *host);

#if defined(__cplusplus)
}
#endif
