/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stand-in for the part of NCCL that gpu/ uses: blocking communicators. MPI sends their messages
  when the stand-in's streams reach them. Names, types and meanings are the same as in NCCL 2.28.

  The stand-in ends with a message and abort() if it finds one of these mistakes: a non-blocking
  communicator, a communicator used from two streams, a message whose sender and receiver pass
  different sizes, and host memory in place of device memory.

  If NCCL_ON_CPU_FAULT=rank,call,kind is in the environment, a fault occurs on that rank of
  MPI_COMM_WORLD, in the call-th operation (from 0, over all communicators).
  - error: the operation never ends, and its communicator reports an error
  - hang: the operation never ends, and no error is reported
  - init: set-up fails instead
  - stuck: the call does not return until another thread aborts its communicator
*/
#pragma once

#include "cuda_runtime_api.h"

#include <limits.h>

#define NCCL_MAJOR                        2
#define NCCL_MINOR                        28
#define NCCL_PATCH                        0
#define NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE                 NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)
#define NCCL_UNIQUE_ID_BYTES              128

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;

typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress
} ncclResult_t;

/* types of bytes, which are copied, and of floats, which are summed */
typedef enum { ncclInt8, ncclUint8, ncclFloat32 = 7 } ncclDataType_t;
typedef enum { ncclSum } ncclRedOp_t;

typedef struct {
  size_t size;
  int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER \
  { \
    sizeof(ncclConfig_t), 1 \
  }

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
/* Add the ranks' numbers from the last rank to the first. */
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);

#if defined(__cplusplus)
}
#endif
