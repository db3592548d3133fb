/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/buffer.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TRS_ALIGNMENT = 64 };
static const size_t page_bytes = 4096, huge_page_bytes = (size_t)2 << 20, huge_from_bytes = (size_t)4 << 20;

/* The header of a block, in the 64 bytes before the block. */
typedef struct {
  void *base;
  size_t mapped_bytes; /* 0 if posix_memalign() allocated the block */
  int64_t bytes;
  TrsMemoryKind kind;
} TrsBlockHeader;

static _Atomic int64_t n_allocations_now, held_bytes_now[TRS_N_MEMORY_KINDS];
static _Thread_local TrsMemoryKind current_kind = TRS_MEMORY_SCRATCH;

static int64_t all_held(void)
{
  int64_t bytes = 0;

  for (int k = 0; k < TRS_N_MEMORY_KINDS; k++) bytes += held_bytes_now[k];
  return bytes;
}

static TrsBlockHeader *header_of(void *data)
{
  return (TrsBlockHeader *)((char *)data - TRS_ALIGNMENT);
}

/*
  Map memory whose data begins on a huge page. The header is on the page before the data. The memory
  contains zeros, and the system provides a page only when the program first touches it.
*/
static void *map_block(size_t bytes, TrsBlockHeader *header)
{
  size_t length = (bytes + page_bytes - 1) / page_bytes * page_bytes + huge_page_bytes + page_bytes;
  char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *data;

  if (base == MAP_FAILED) return NULL;
  data = base + page_bytes;
  data += (huge_page_bytes - (uintptr_t)data % huge_page_bytes) % huge_page_bytes;
  /* only advice: a kernel without huge pages refuses it */
  (void)madvise(data, bytes, MADV_HUGEPAGE);
  header->base = base;
  header->mapped_bytes = length;
  return data;
}

PetscBool TrsMemoryHasHugePages(void)
{
  FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  char text[64] = "";

  if (!file) return PETSC_FALSE;
  if (!fgets(text, (int)sizeof(text), file)) text[0] = '\0';
  (void)fclose(file);
  return (PetscBool)(strstr(text, "[always]") || strstr(text, "[madvise]"));
}

static void *heap_block(size_t bytes, TrsBlockHeader *header)
{
  void *base = NULL;

  if (posix_memalign(&base, TRS_ALIGNMENT, bytes + TRS_ALIGNMENT) != 0) return NULL;
  header->base = base;
  header->mapped_bytes = 0;
  return (char *)base + TRS_ALIGNMENT;
}

static PetscBool grows_with_batches(TrsMemoryKind kind)
{
  return (PetscBool)(kind == TRS_MEMORY_BATCHES || kind == TRS_MEMORY_EXCHANGES ||
                     kind == TRS_MEMORY_ACTIVATIONS);
}

static PetscErrorCode get_block(int64_t bytes, PetscBool zero, void **data)
{
  TrsBlockHeader header = {.bytes = bytes, .kind = current_kind};

  PetscFunctionBegin;
  *data = (size_t)bytes >= huge_from_bytes ? map_block((size_t)bytes, &header)
                                           : heap_block((size_t)bytes, &header);
  PetscCheck(*data, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "out of memory: cannot allocate %" PRId64 " bytes for %s (this rank holds %" PRId64
             " bytes in buffers)%s",
             bytes, TrsMemoryKindName(current_kind), all_held(),
             grows_with_batches(current_kind) ? "; a smaller -batch_size needs less" : "");
  if (zero && header.mapped_bytes == 0) memset(*data, 0, (size_t)bytes);
  *header_of(*data) = header;
  n_allocations_now++;
  held_bytes_now[header.kind] += bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void free_block(void *data)
{
  TrsBlockHeader header;

  if (!data) return;
  header = *header_of(data);
  held_bytes_now[header.kind] -= header.bytes;
  if (header.mapped_bytes) {
    munmap(header.base, header.mapped_bytes);
  } else {
    free(header.base);
  }
}

PetscErrorCode TrsBufferReserve(TrsBuffer *buffer, int64_t bytes, PetscBool keep)
{
  void *data;
  int64_t grown = buffer->capacity_bytes + buffer->capacity_bytes / 2;

  PetscFunctionBegin;
  PetscCheck(bytes >= 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "buffer of %" PRId64 " bytes", bytes);
  if (bytes <= buffer->capacity_bytes) PetscFunctionReturn(PETSC_SUCCESS);
  if (grown < bytes) grown = bytes;
  /* free first, so that the old and the new memory never exist at the same time */
  if (!keep) PetscCall(TrsBufferFree(buffer));
  PetscCall(get_block(grown, PETSC_FALSE, &data));
  if (keep && buffer->data) {
    memcpy(data, buffer->data, (size_t)buffer->capacity_bytes);
    free_block(buffer->data);
  }
  buffer->data = data;
  buffer->capacity_bytes = grown;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBufferFree(TrsBuffer *buffer)
{
  PetscFunctionBegin;
  free_block(buffer->data);
  *buffer = (TrsBuffer){NULL, 0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAlloc(int64_t n, size_t size, void *pointer_to_pointer)
{
  void *data;
  int64_t bytes;

  PetscFunctionBegin;
  PetscCheck(n >= 0 && !__builtin_mul_overflow(n, size, &bytes) && bytes <= INT64_MAX / 2, PETSC_COMM_SELF,
             TRS_ERR_MEMORY, "out of memory: %" PRId64 " elements of %zu bytes exceed the address space", n,
             size);
  PetscCall(get_block(bytes, PETSC_TRUE, &data));
  /* memcpy works for any pointer type, and obeys the aliasing rule */
  memcpy(pointer_to_pointer, &data, sizeof(data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsFree(void *pointer_to_pointer)
{
  void *data;

  PetscFunctionBegin;
  memcpy(&data, pointer_to_pointer, sizeof(data));
  free_block(data);
  data = NULL;
  memcpy(pointer_to_pointer, &data, sizeof(data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsMemoryUse(int64_t *n_allocations, int64_t *held_bytes)
{
  if (n_allocations) *n_allocations = n_allocations_now;
  if (held_bytes) *held_bytes = all_held();
}

void TrsMemoryHeld(int64_t held_bytes[TRS_N_MEMORY_KINDS])
{
  for (int k = 0; k < TRS_N_MEMORY_KINDS; k++) held_bytes[k] = held_bytes_now[k];
}

void TrsMemoryCount(TrsMemoryKind kind, int64_t bytes)
{
  if (bytes > 0) n_allocations_now++;
  held_bytes_now[kind] += bytes;
}

TrsMemoryKind TrsMemoryFor(TrsMemoryKind kind)
{
  const TrsMemoryKind before = current_kind;

  current_kind = kind;
  return before;
}

TrsMemoryKind TrsMemoryIsFor(void)
{
  return current_kind;
}

const char *TrsMemoryKindName(TrsMemoryKind kind)
{
  static const char *const names[TRS_N_MEMORY_KINDS] = {"tables",    "optimizer_states", "dense",  "batches",
                                                        "exchanges", "activations",      "scratch"};

  return names[kind];
}
