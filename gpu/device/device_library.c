/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/device/device_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#if !defined(TRS_CUDA_LIBRARIES)
  #define TRS_CUDA_LIBRARIES "" /* the stand-in for CUDA has no toolkit */
#endif

void *TrsCudaLibraryOpen(const char *name, char *why_not, size_t why_not_size)
{
  const char *const roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
  enum { TRS_ROOTS = sizeof(roots) / sizeof(*roots) };
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

  if (!library)
    snprintf(why_not, why_not_size,
             "%s; put its folder into LD_LIBRARY_PATH (pip's packages have it in nvidia/*/lib)", dlerror());
  for (int i = 0; !library && i <= TRS_ROOTS; i++) {
    const char *const root = i < TRS_ROOTS ? roots[i] : TRS_CUDA_LIBRARIES;
    char path[PETSC_MAX_PATH_LEN];

    if (!root || !root[0]) continue;
    snprintf(path, sizeof(path), "%s%s/%s", root, i < TRS_ROOTS ? "/lib64" : "", name);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}
