/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Memory that other processes of this host can read and write. Each process has one sparse file in
  memory, which its peers map as a whole. So peers can read blocks that are allocated later, and a
  buffer grows without the peers' cooperation.

  MPI_Win_allocate_shared() is not used: each growth would be a collective call, and its memory is
  in /dev/shm, which has 64 MiB in many containers. A memfd is limited only by the host's memory,
  and is removed with its last process. process_vm_readv() is not used: it reaches only 0.5 to 0.75
  of the speed (tools/bench_comm.sh has the machine's figures), and containers and Yama withhold the
  permission that it needs.

  Only the main thread calls these functions. The file lives until the process ends.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/*
  The data with which another process finds this process's memory. The struct is sent as plain
  bytes.
*/
typedef struct {
  int64_t pid, fd, bytes; /* bytes is 0 if there is no shared memory */
  /* also stored in the memory, to recognise it: the same PID can be another process in another
     PID namespace */
  uint64_t nonce;
} TrsSharedKey;

/*
  Allow or forbid shared memory (-comm_shared_memory). It is allowed at the start. Must be called
  before TrsSharedOpen().
*/
void TrsSharedAllow(PetscBool allow);
PetscBool TrsSharedAllowed(void);

/*
  TrsSharedOpen - Reserve this process's shared memory. A second call changes nothing.

  Not collective. This reserves address space; it uses no memory yet.

  In:   bytes    largest size of all later blocks together
  Out:  key      the key for other processes; key->bytes is 0 if there is no shared memory
        why_not  the reason if there is none
*/
PetscErrorCode TrsSharedOpen(int64_t bytes, TrsSharedKey *key, char *why_not, size_t why_not_size);

/*
  Allocate a block of zeros, on pages of its own. The block is in shared memory if that is open and
  has space. If not, TrsAlloc() allocates the block. Errors: MEMORY.
*/
PetscErrorCode TrsSharedAlloc(int64_t bytes, void **pointer);

/* If *pointer is a block in shared memory, free it, set *pointer to NULL, and return PETSC_TRUE. */
PetscBool TrsSharedRelease(void **pointer);

/*
  Return the offset of [pointer, pointer + bytes) in this process's shared memory, or -1 if the
  bytes are not all in it.
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
  Return the bytes of other processes' shared memory that the system counts as resident in this
  process. Their owners count the same bytes. Returns 0 if /proc does not show the number.
*/
int64_t TrsSharedPeersResident(void);
