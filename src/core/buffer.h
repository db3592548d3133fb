/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Host memory, aligned to 64 bytes, with huge pages for large blocks. If the caller does not need a
  buffer's contents, the buffer grows without copying them.

  A step allocates nothing after warm-up: buffers only grow, and by at least half their size.
  TrsMemoryUse() counts the allocations so that a test can prove this.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  void *data; /* 64-byte aligned; NULL if capacity is 0 */
  int64_t capacity_bytes;
} TrsBuffer;

/*
  Make a buffer at least `bytes` bytes large. The contents are kept only if `keep` is set. Not
  collective. Errors: MEMORY, with the number of bytes requested.
*/
PetscErrorCode TrsBufferReserve(TrsBuffer *buffer, int64_t bytes, PetscBool keep);
PetscErrorCode TrsBufferFree(TrsBuffer *buffer);

/*
  Allocate one aligned block of n * size bytes, and check that this product does not overflow. The
  block contains zeros. Blocks of 4 MiB and more use huge pages if the system allows. Free the block
  with TrsFree().
*/
PetscErrorCode TrsAlloc(int64_t n, size_t size, void *pointer_to_pointer);
PetscErrorCode TrsFree(void *pointer_to_pointer); /* sets the pointer to NULL */

/* The purposes of memory, as a run's report lists them. */
typedef enum {
  TRS_MEMORY_TABLES,
  TRS_MEMORY_STATES, /* states of the tables' optimizers */
  TRS_MEMORY_DENSE,  /* the dense layers' parameters, gradients and states */
  TRS_MEMORY_BATCHES,
  TRS_MEMORY_EXCHANGES, /* ids and rows that travel between ranks */
  TRS_MEMORY_ACTIVATIONS,
  TRS_MEMORY_SCRATCH, /* the default, for everything else */
  TRS_N_MEMORY_KINDS
} TrsMemoryKind;

const char *TrsMemoryKindName(TrsMemoryKind kind);

/*
  Set the purpose of all later allocations of this thread. Returns the previous purpose, so that the
  caller can restore it.
*/
TrsMemoryKind TrsMemoryFor(TrsMemoryKind kind);
TrsMemoryKind TrsMemoryIsFor(void);

/* True if the system gives huge pages to memory that asks for them. */
PetscBool TrsMemoryHasHugePages(void);

/*
  Return how often TrsBufferReserve() has enlarged a buffer or TrsAlloc() was called since the
  start, and the number of bytes allocated now.
*/
void TrsMemoryUse(int64_t *n_allocations, int64_t *held_bytes);

/*
  Return the bytes of address space that are allocated now for each purpose. The system has provided
  memory only for the pages that the program has touched.
*/
void TrsMemoryHeld(int64_t held_bytes[TRS_N_MEMORY_KINDS]);

/*
  Count a block of another allocator in TrsMemoryUse(). A positive `bytes` adds a block, a negative
  one removes it.
*/
void TrsMemoryCount(TrsMemoryKind kind, int64_t bytes);
