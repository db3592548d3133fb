/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Memory that other processes of this host can read: each process has one sparse file in memory, which its peers map as a whole. So what
  is allocated later is visible to them at once, and growing a buffer is no matter of theirs.

  Why not MPI_Win_allocate_shared(): it is collective at each growth, and lies in /dev/shm, which has 64 MiB in many containers. A memfd is
  bounded by memory alone and gone with its last process. Why not process_vm_readv(): it moves 0.5 to 0.75 of the bytes/s (tools/bench_comm.sh
  has the machine's figures), and needs a permission that containers and Yama withhold.

  Called by the main thread alone. The file lives until the process ends.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

/* What a peer needs to find the memory of a process. Plain bytes, to be sent. */
typedef struct {
  int64_t pid, fd, bytes; /* bytes 0: there is none */
  uint64_t nonce;         /* stands in the memory, too: another PID namespace has other processes */
} TrsSharedKey;

/* May memory be shared? PETSC_TRUE at the start; -comm_shared_memory says it. Before TrsSharedOpen(). */
void TrsSharedAllow(PetscBool allow);
PetscBool TrsSharedAllowed(void);

/*
  TrsSharedOpen - Reserve this process's shared memory; nothing happens when that was done before.

  Not collective. Takes address space, no memory.

  In:   bytes    at most so many can be allocated
  Out:  key      of it; key->bytes 0 when there is none
        why_not  the reason then
*/
PetscErrorCode TrsSharedOpen(int64_t bytes, TrsSharedKey *key, char *why_not, size_t why_not_size);

/* A block of zeros on pages of its own: of shared memory where it is open and has room, else TrsAlloc()'s. Errors: MEMORY. */
PetscErrorCode TrsSharedAlloc(int64_t bytes, void **pointer);

/* Is it a block of shared memory? Then it is given back, and *pointer NULL. */
PetscBool TrsSharedRelease(void **pointer);

/* Where bytes from pointer on lie in this process's shared memory; -1: not in it. */
int64_t TrsSharedOffset(const void *pointer, int64_t bytes);

/*
  TrsSharedAttach - Map the memory of another process of this host, to read.

  Not collective. Mapped once, however often it is attached.

  Out:  base     its first byte; NULL when it cannot be mapped. Valid until as many TrsSharedDetach()
        why_not  the reason then
*/
PetscErrorCode TrsSharedAttach(const TrsSharedKey *key, const char **base, char *why_not,
                               size_t why_not_size);
PetscErrorCode TrsSharedDetach(const char *base);

/* Bytes of other processes' memory among what the system counts as resident in this one: they are also in their owner's. 0 where /proc does not tell. */
int64_t TrsSharedPeersResident(void);
