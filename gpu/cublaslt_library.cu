/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/cublaslt_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static TrsCublasLt functions; /* filled once, then constant */

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

/* A function's address is a data pointer to dlsym, so it is copied as bytes. */
static bool find(void *library, const char *name, void *function, size_t size)
{
  void *address = dlsym(library, name);

  memcpy(function, &address, size);
  return address != NULL;
}

static bool fill()
{
  void *library = dlopen("libcublasLt.so." TRS_STRING(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
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

  return found && !(choice && strcmp(choice, "own") == 0) ? &functions : NULL;
}
