/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Host memory: 64-byte aligned, huge pages where large, growable without copying what need not be kept.

  A step allocates nothing after warm-up: buffers only grow, by half their size at least. TrsBufferAllocations() counts so that a test can prove it.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  void *data; /* 64-byte aligned; NULL when capacity is 0 */
  int64_t capacity_bytes;
} TrsBuffer;

/* Make room for `bytes`; contents are kept only if keep. Errors: MEMORY with the bytes asked for. Not collective. */
PetscErrorCode TrsBufferReserve(TrsBuffer *buffer, int64_t bytes, PetscBool keep);
PetscErrorCode TrsBufferFree(TrsBuffer *buffer);

/* One aligned block of n * size bytes (checked product), zeroed by the system; madvise(HUGEPAGE) from 4 MiB. Free with TrsFree(). */
PetscErrorCode TrsAlloc(int64_t n, size_t size, void *pointer_to_pointer);
PetscErrorCode TrsFree(void *pointer_to_pointer); /* sets it NULL */

/* What memory is for, for the report of a run. */
typedef enum {
  TRS_MEMORY_TABLES,
  TRS_MEMORY_STATES, /* of the tables' optimizers */
  TRS_MEMORY_DENSE,  /* the dense layers' parameters, gradients and states */
  TRS_MEMORY_BATCHES,
  TRS_MEMORY_EXCHANGES, /* ids and rows on their way between ranks */
  TRS_MEMORY_ACTIVATIONS,
  TRS_MEMORY_SCRATCH, /* all the rest; the default */
  TRS_N_MEMORY_KINDS
} TrsMemoryKind;

const char *TrsMemoryKindName(TrsMemoryKind kind);

/* What this thread allocates from now on is for `kind`; returns what it was for before, so that the caller can go back. */
TrsMemoryKind TrsMemoryFor(TrsMemoryKind kind);
TrsMemoryKind TrsMemoryIsFor(void);

/* Number of TrsBufferReserve growths and TrsAlloc calls since the start, and bytes held now. */
void TrsMemoryUse(int64_t *n_allocations, int64_t *held_bytes);

/* Bytes held now of each kind: addresses, of which the system has given those that were touched. */
void TrsMemoryHeld(int64_t held_bytes[TRS_N_MEMORY_KINDS]);

/* A block of another allocator has come (bytes > 0) or gone (< 0): TrsMemoryUse() counts it, too. */
void TrsMemoryCount(TrsMemoryKind kind, int64_t bytes);
