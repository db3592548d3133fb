/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Memory that other processes of this host can read and write. Each process has one sparse file in
  memory, which its peers map as a whole. Thus peers see later allocations at once, and a buffer
  grows without their help.

  Why not MPI_Win_allocate_shared(): it is collective at each growth, and its memory lies in
  /dev/shm, which has 64 MiB in many containers. A memfd is limited only by the host's memory and
  disappears with its last process. Why not process_vm_readv(): it moves 0.5 to 0.75 of the bytes/s
  (tools/bench_comm.sh has the machine's figures), and it needs a permission that containers and
  Yama withhold.

  Only the main thread calls these functions. The file lives until the process ends.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* The data that a peer needs to find the memory of a process. The struct is sent as plain bytes. */
typedef struct {
  int64_t pid, fd, bytes; /* bytes is 0 if there is no shared memory */
  /* also stored in the memory: in another PID namespace the same PID is another process */
  uint64_t nonce;
} TrsSharedKey;

/*
  Allow or forbid shared memory (-comm_shared_memory). The initial value is PETSC_TRUE.
  Call this before TrsSharedOpen().
*/
void TrsSharedAllow(PetscBool allow);
PetscBool TrsSharedAllowed(void);

/*
  TrsSharedOpen - Reserve this process's shared memory. A second call changes nothing.

  Not collective. Takes address space, but no memory.

  In:   bytes    the most that can be allocated later
  Out:  key      the key of the memory; key->bytes is 0 if there is none
        why_not  the reason why there is none
*/
PetscErrorCode TrsSharedOpen(int64_t bytes, TrsSharedKey *key, char *why_not, size_t why_not_size);

/*
  Allocate a block of zeros on its own pages. The block is in shared memory if that is open and has
  room; otherwise TrsAlloc() provides it. Errors: MEMORY.
*/
PetscErrorCode TrsSharedAlloc(int64_t bytes, void **pointer);

/* If *pointer is a block of shared memory, free it, set *pointer to NULL and return PETSC_TRUE. */
PetscBool TrsSharedRelease(void **pointer);

/*
  The offset of [pointer, pointer + bytes) in this process's
  shared memory, or -1 if it lies elsewhere.
*/
int64_t TrsSharedOffset(const void *pointer, int64_t bytes);

/*
  TrsSharedAttach - Map the memory of another process of this host.

  Not collective. The memory is mapped only once, even if it is attached several times.

  Out:  base     the first byte, or NULL if the memory cannot be mapped; valid until the matching
                 number of TrsSharedDetach() calls
        why_not  the reason why it cannot be mapped
*/
PetscErrorCode TrsSharedAttach(const TrsSharedKey *key, const char **base, char *why_not,
                               size_t why_not_size);
PetscErrorCode TrsSharedDetach(const char *base);

/*
  Bytes of other processes' memory that the system counts as resident in this process. The owners
  count the same bytes. Returns 0 if /proc does not show them.
*/
int64_t TrsSharedPeersResident(void);
