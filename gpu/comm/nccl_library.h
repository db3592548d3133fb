/* SPDX-License-Identifier: BSD-3-Clause */
/*
  NCCL is opened when it is first needed. A program built with NCCL starts on machines without NCCL,
  and runs there on a CPU or with -comm_backend mpi. The stand-in for tests is linked instead of
  opened.
*/
#pragma once

#include "core/error.h"

#include <nccl.h>

#define TRS_NCCL_FUNCTIONS(X) \
  X(GetVersion) \
  X(GetUniqueId) \
  X(CommInitRankConfig) \
  X(CommFinalize) \
  X(CommDestroy) \
  X(CommAbort) \
  X(CommGetAsyncError) \
  X(GetErrorString) \
  X(GetLastError) \
  X(GroupStart) \
  X(GroupEnd) \
  X(Send) \
  X(Recv) \
  X(AllGather) \
  X(AllReduce)

/* One pointer for each function. For example, Send points to ncclSend. */
typedef struct {
#define TRS_NCCL_POINTER(name) __typeof__(&nccl##name) name;
  TRS_NCCL_FUNCTIONS(TRS_NCCL_POINTER)
#undef TRS_NCCL_POINTER
} TrsNccl;

/*
  Open NCCL, once per process. Errors: UNAVAILABLE if NCCL is missing, or older than the version for
  which this program was built. Not collective.
*/
PetscErrorCode TrsNcclOpen(const TrsNccl **nccl);

/* NCCL's version, in its own numbering; 0 before TrsNcclOpen(). */
int TrsNcclVersion(void);
