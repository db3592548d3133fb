/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/onednn_library.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
  The first fields of oneDNN's dnnl_version_t, which are the same in versions 1 to 3. threads is 1
  for none and 2 for OpenMP; otherwise oneDNN has threads of its own.
*/
typedef struct {
  int major, minor, patch;
  const char *hash;
  unsigned threads;
} TrsOneDnnVersion;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static TrsOneDnn functions; /* set once, then constant */

/*
  Find a function of the library. dlsym() returns a pointer to data, so the function's address is
  copied as bytes.
*/
static void find(void *library, const char *name, void *function, size_t size)
{
  void *address = dlsym(library, name);

  memcpy(function, &address, size);
}

/* True if omp_set_num_threads() of our OpenMP can limit a call to the calling thread. */
static int threads_are_ours(void *library, const TrsOneDnnVersion *version)
{
  int (*theirs)(void);

  find(library, "omp_get_max_threads", &theirs, sizeof(theirs));
  return version->threads == 1 || (version->threads == 2 && theirs == omp_get_max_threads);
}

static void fill(void)
{
  static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.3.6", "libdnnl.so.2", "libdnnl.so"};
  /* libdnnl.so.3.6 is the library of Debian 13; a library with the last name is installed with
     the headers */
  const char *choice = getenv("TRSHARD_GEMM");
  const TrsOneDnnVersion *(*version)(void) = NULL;
  void *library = NULL;

  if (choice && !strcmp(choice, "openblas")) return;
  for (size_t i = 0; !library && i < sizeof(names) / sizeof(names[0]); i++)
    library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
  if (!library) return;
  find(library, "dnnl_version", &version, sizeof(version));
  if (!version || version()->major > 3 || !threads_are_ours(library, version())) return;
  find(library, "dnnl_sgemm", &functions.sgemm, sizeof(functions.sgemm));
  find(library, "dnnl_gemm_bf16bf16f32", &functions.gemm_bf16, sizeof(functions.gemm_bf16));
  snprintf(functions.name, sizeof(functions.name), "oneDNN %d.%d.%d", version()->major, version()->minor,
           version()->patch);
}

const TrsOneDnn *TrsOneDnnOpen(void)
{
  pthread_once(&once, fill);
  return functions.sgemm ? &functions : NULL;
}
