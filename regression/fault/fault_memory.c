/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes allocations fail, for fault_preload.c: allocations by the program, by PETSc, and by the
  libraries that read text files. Allocations by MPI and the C library do not fail. Those by HDF5 do
  not fail either, because HDF5 1.10 would crash at its end (H5FL_garbage_coll).
*/
#define _GNU_SOURCE /* needed for dl_iterate_phdr */
#include "fault_memory.h"

#include "fault_injector.h"

#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
  The C library's own allocator. In contrast to dlsym(), it can be called without a look-up that
  allocates memory.
*/
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

enum { MAX_RANGES = 8 };
static struct {
  uintptr_t begin, end;
} range[MAX_RANGES]; /* address ranges of the code whose calls are counted */
static int n_ranges;

static int add_object(struct dl_phdr_info *info, size_t size, void *context)
{
  static const char *const libraries[] = {"libpetsc", "libjansson", "libyaml"};
  /* the program is the first entry and has no name */
  int is_ours = info->dlpi_name[0] == '\0' && n_ranges == 0;

  (void)size;
  (void)context;
  for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
    is_ours |= strstr(info->dlpi_name, libraries[i]) != NULL;
  for (int i = 0; is_ours && i < info->dlpi_phnum && n_ranges < MAX_RANGES; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];

    if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
    range[n_ranges].begin = info->dlpi_addr + part->p_vaddr;
    range[n_ranges++].end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
  }
  return 0;
}

void fault_memory_watch(void)
{
  (void)dl_iterate_phdr(add_object, NULL);
}

static int strikes(const void *caller)
{
  for (int i = 0; i < n_ranges; i++)
    if ((uintptr_t)caller >= range[i].begin && (uintptr_t)caller < range[i].end)
      return fault_strikes("malloc", NULL) == 1;
  return 0;
}

void *malloc(size_t bytes)
{
  return strikes(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
  return strikes(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
  return strikes(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}

int posix_memalign(void **data, size_t alignment, size_t bytes)
{
  void *found = strikes(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);

  if (found) *data = found;
  return found ? 0 : ENOMEM;
}
