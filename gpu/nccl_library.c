/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/nccl_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { TRS_NCCL_OLDEST = 22200 }; /* all that is used here behaves as needed from 2.22 on */

static TrsNccl functions; /* filled once, then constant */

#if defined(CUDA_ON_CPU)
static PetscErrorCode fill(void)
{
  PetscFunctionBegin;
  #define TRS_NCCL_LINKED(name) functions.name = nccl##name;
  TRS_NCCL_FUNCTIONS(TRS_NCCL_LINKED)
  #undef TRS_NCCL_LINKED
  PetscFunctionReturn(PETSC_SUCCESS);
}
#else
/* A function's address is a data pointer to dlsym, so it is copied as bytes. */
static PetscErrorCode find(void *library, const char *name, void *function, size_t size)
{
  void *address = dlsym(library, name);

  PetscFunctionBegin;
  PetscCheck(address, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE, "-comm_backend nccl: libnccl.so.2 has no %s",
             name);
  memcpy(function, &address, size);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode fill(void)
{
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

  PetscFunctionBegin;
  PetscCheck(library, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-comm_backend nccl: %s; put NCCL's folder into LD_LIBRARY_PATH, or use -comm_backend mpi",
             dlerror());
  #define TRS_NCCL_FIND(name) PetscCall(find(library, "nccl" #name, &functions.name, sizeof(functions.name)));
  TRS_NCCL_FUNCTIONS(TRS_NCCL_FIND)
  #undef TRS_NCCL_FIND
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif

PetscErrorCode TrsNcclOpen(const TrsNccl **nccl)
{
  int version = 0;

  PetscFunctionBegin;
  if (!functions.GetVersion) {
    PetscCall(fill());
    (void)functions.GetVersion(&version);
    PetscCheck(version >= TRS_NCCL_OLDEST, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
               "-comm_backend nccl: libnccl.so.2 is version %d, at least %d is needed", version,
               TRS_NCCL_OLDEST);
  }
  *nccl = &functions;
  PetscFunctionReturn(PETSC_SUCCESS);
}
