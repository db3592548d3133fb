/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Scratch of the GPU's kernels, and small host arrays (tables, offsets of blocks) on their way to the device.

  Belongs to one stream at a time, as every TrsWorkspace. Nothing here is allocated once it has seen the largest call.
*/
#pragma once

#include "compute/compute_ops.h"

/* Scratch arrays that a call may use at the same time. */
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
  TRS_CUDA_SOURCES,
  TRS_CUDA_SCALES,
  TRS_CUDA_SOURCES_UNSORTED,
  TRS_CUDA_SCALES_UNSORTED,
  TRS_CUDA_CLASS_RUNS,
  TRS_CUDA_LOCATIONS, /* in a cache of rows */
  TRS_CUDA_MISSES,
  TRS_CUDA_EVICTED,
  TRS_CUDA_N_SCRATCH
};

/* Small arrays that go to the device; each kind of call has its own, so that the next step finds them there. */
enum {
  TRS_CUDA_BLOCKS,
  TRS_CUDA_CUTS,
  TRS_CUDA_BOUNDS,
  TRS_CUDA_TABLES_BEGIN,
  TRS_CUDA_LOOKUP, /* and two more: TrsLookupKind */
  TRS_CUDA_TABLES = TRS_CUDA_LOOKUP + 3,
  TRS_CUDA_FEATURES,
  TRS_CUDA_CLASSES,
  TRS_CUDA_CACHE_TABLES,
  TRS_CUDA_CACHE_FEATURES,
  TRS_CUDA_LISTS,
  TRS_CUDA_BAG_FEATURES,
  TRS_CUDA_BAG_BLOCKS, /* and one more, of padded blocks */
  TRS_CUDA_STRIDES = TRS_CUDA_BAG_BLOCKS + 2,
  TRS_CUDA_COPIES,
  TRS_CUDA_N_UPLOADS
};

/* Pinned copies in turn: a step uploads an array that changes up to this often before its host must not be ahead any more. */
enum { TRS_CUDA_IN_TURN = 4 };

typedef struct {
  void *host
      [TRS_CUDA_IN_TURN]; /* pinned; the current one is what the device holds, or will when the copies enqueued are done */
  int64_t capacity_bytes[TRS_CUDA_IN_TURN];
  TrsEvent copied[TRS_CUDA_IN_TURN]; /* it may be changed again */
  int current;
  TrsDeviceBuffer device;
  int64_t bytes;
} TrsCudaUpload;

struct TrsWorkspaceImpl {
  TrsDeviceBuffer scratch[TRS_CUDA_N_SCRATCH];
  TrsCudaUpload upload[TRS_CUDA_N_UPLOADS];
  TrsBuffer host[TRS_CUDA_N_UPLOADS]; /* where a call puts such an array together */
  void *answer;                       /* pinned, for what a slot returns to the host */
  int64_t answer_bytes;
};

#if defined(__cplusplus)
extern "C" {
#endif

/* Device memory for n elements in one of the workspace's scratch arrays; contents are what the last user left. */
PetscErrorCode TrsCudaScratch(TrsWorkspace workspace, int which, int64_t n, size_t size,
                              void *pointer_to_pointer);

/* The same in host memory, to put together what upload array `which` will hold. */
PetscErrorCode TrsCudaHostScratch(TrsWorkspace workspace, int which, int64_t n, size_t size,
                                  void *pointer_to_pointer);

/*
  TrsCudaUploadArray - A device copy of a small host array, valid for kernels enqueued on the stream from now on, until the next upload there.

  Does not wait as a rule: an array that equals the last one is there already (tables and blocks seldom change from step to step); a changed one
  goes through pinned memory, which waits only while the fourth copy before has not been done yet: arrays that change with the batch go twice a step, and
  the host is a step ahead of the device at most.
*/
PetscErrorCode TrsCudaUploadArray(TrsWorkspace workspace, int which, TrsStream stream, int64_t bytes,
                                  const void *host, void *pointer_to_pointer);

/* Copy device memory to the host and wait for it: what a slot's host results need. */
PetscErrorCode TrsCudaAnswer(TrsWorkspace workspace, TrsStream stream, int64_t bytes, const void *device,
                             void *host);

#if defined(__cplusplus)
}
#endif
