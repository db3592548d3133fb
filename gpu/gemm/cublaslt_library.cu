/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/device/device_library.h"
#include "gpu/gemm/cublaslt_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static TrsCublasLt functions; /* filled once, constant afterwards */
/* why the functions are missing, or "" if they are not missing */
static char missing[512];
static bool asked_for_own = false; /* TRSHARD_GEMM=own was set at the last call */

#if defined(CUDA_ON_CPU)
static bool fill()
{
  #define TRS_CUBLASLT_LINKED(name) functions.name = cublasLt##name;
  TRS_CUBLASLT_FUNCTIONS(TRS_CUBLASLT_LINKED)
  #undef TRS_CUBLASLT_LINKED
  return true;
}
#else
  #define TRS_STRING_OF(x) #x
  #define TRS_STRING(x)    TRS_STRING_OF(x)
  #define TRS_CUBLASLT     "libcublasLt.so." TRS_STRING(CUBLAS_VER_MAJOR)

/* dlsym returns a function's address as a data pointer, so the address is copied as bytes. */
static bool find(void *library, const char *name, void *function, size_t size)
{
  void *address = dlsym(library, name);

  if (!address) snprintf(missing, sizeof(missing), "%s has no %s", TRS_CUBLASLT, name);
  memcpy(function, &address, size);
  return address != NULL;
}

static bool fill()
{
  void *library = TrsCudaLibraryOpen(TRS_CUBLASLT, missing, sizeof(missing));
  bool all = library != NULL;

  #define TRS_CUBLASLT_FIND(name) \
    all = all && find(library, "cublasLt" #name, &functions.name, sizeof(functions.name));
  TRS_CUBLASLT_FUNCTIONS(TRS_CUBLASLT_FIND)
  #undef TRS_CUBLASLT_FIND
  return all;
}
#endif

const TrsCublasLt *TrsCublasLtOpen()
{
  static const bool found = fill();
  const char *choice = getenv("TRSHARD_GEMM");

  asked_for_own = choice && strcmp(choice, "own") == 0;
  return found && !asked_for_own ? &functions : NULL;
}

const char *TrsCublasLtMissing()
{
  return asked_for_own ? "TRSHARD_GEMM=own in the environment" : missing;
}
