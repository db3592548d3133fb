/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Host memory is aligned to 64 bytes, and large blocks use huge pages. A buffer grows without
  copying contents that the caller does not need.

  A step allocates nothing after warm-up: buffers only grow, and by at least half their size.
  TrsMemoryUse() counts the allocations so that a test can prove this.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  void *data; /* 64-byte aligned; NULL when capacity is 0 */
  int64_t capacity_bytes;
} TrsBuffer;

/*
  Make room for `bytes` bytes. The contents are kept only if `keep` is set. Not collective. Errors:
  MEMORY, with the number of bytes asked for.
*/
PetscErrorCode TrsBufferReserve(TrsBuffer *buffer, int64_t bytes, PetscBool keep);
PetscErrorCode TrsBufferFree(TrsBuffer *buffer);

/*
  Allocate one aligned block of n * size bytes, with a check of the product. The system fills the
  block with zeros. Blocks of 4 MiB and more ask for huge pages. Free the block with TrsFree().
*/
PetscErrorCode TrsAlloc(int64_t n, size_t size, void *pointer_to_pointer);
PetscErrorCode TrsFree(void *pointer_to_pointer); /* sets the pointer to NULL */

/* The purposes of memory, as listed in a run's report. */
typedef enum {
  TRS_MEMORY_TABLES,
  TRS_MEMORY_STATES, /* states of the tables' optimizers */
  TRS_MEMORY_DENSE,  /* the dense layers' parameters, gradients and states */
  TRS_MEMORY_BATCHES,
  TRS_MEMORY_EXCHANGES, /* ids and rows that travel between ranks */
  TRS_MEMORY_ACTIVATIONS,
  TRS_MEMORY_SCRATCH, /* the default: everything else */
  TRS_N_MEMORY_KINDS
} TrsMemoryKind;

const char *TrsMemoryKindName(TrsMemoryKind kind);

/*
  Set the purpose of this thread's further allocations. Returns the previous purpose so that the
  caller can restore it.
*/
TrsMemoryKind TrsMemoryFor(TrsMemoryKind kind);
TrsMemoryKind TrsMemoryIsFor(void);

/* Count TrsBufferReserve() growths and TrsAlloc() calls since the start, and bytes held now. */
void TrsMemoryUse(int64_t *n_allocations, int64_t *held_bytes);

/*
  Bytes of address space held now for each purpose. The system has given memory only for the pages
  that the program has touched.
*/
void TrsMemoryHeld(int64_t held_bytes[TRS_N_MEMORY_KINDS]);

/*
  Count a block of another allocator in TrsMemoryUse().
  bytes > 0 adds a block, bytes < 0 removes it.
*/
void TrsMemoryCount(TrsMemoryKind kind, int64_t bytes);
