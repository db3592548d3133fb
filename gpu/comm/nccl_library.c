/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/comm/nccl_library.h"

#include "gpu/device/device_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* the oldest NCCL version that behaves as this code needs: 2.22 */
enum { TRS_NCCL_OLDEST = 22200 };

static TrsNccl functions; /* filled once, constant afterwards */
static int version;

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
/* dlsym returns a function's address as a data pointer, so the address is copied as bytes. */
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
  char why_not[512];
  void *library = TrsCudaLibraryOpen("libnccl.so.2", why_not, sizeof(why_not));

  PetscFunctionBegin;
  PetscCheck(library, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-comm_backend nccl: %s, or use -comm_backend mpi", why_not);
  #define TRS_NCCL_FIND(name) PetscCall(find(library, "nccl" #name, &functions.name, sizeof(functions.name)));
  TRS_NCCL_FUNCTIONS(TRS_NCCL_FIND)
  #undef TRS_NCCL_FIND
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif

PetscErrorCode TrsNcclOpen(const TrsNccl **nccl)
{
  PetscFunctionBegin;
  if (!functions.GetVersion) {
    /* From 2.26 on, this makes kernels of several communicators run in the host's launch order. */
    (void)setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    PetscCall(fill());
    (void)functions.GetVersion(&version);
    PetscCheck(version >= TRS_NCCL_OLDEST, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
               "-comm_backend nccl: libnccl.so.2 is version %d, at least %d is needed", version,
               TRS_NCCL_OLDEST);
  }
  *nccl = &functions;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int TrsNcclVersion(void)
{
  return version;
}
