/* SPDX-License-Identifier: BSD-3-Clause */
/* RTLD_DEFAULT and pthread_getattr_default_np() need _GNU_SOURCE. */
#define _GNU_SOURCE /* NOLINT(bugprone-reserved-identifier) */
#include "cpu/blas_library.h"

#include "core/error.h"

#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#if defined(TRS_BLAS_IS_OPENBLAS)
/*
  Make OpenBLAS choose its kernels again, with OPENBLAS_CORETYPE=core. Every build with DYNAMIC_ARCH
  exports the two functions that this needs.
*/
static void choose_core(const char *core)
{
  void (*quit)(void);
  void (*init)(void);
  const char *given = getenv("OPENBLAS_CORETYPE");
  char *before = given ? strdup(given) : NULL;

  *(void **)&quit = dlsym(RTLD_DEFAULT, "gotoblas_dynamic_quit");
  *(void **)&init = dlsym(RTLD_DEFAULT, "gotoblas_dynamic_init");
  if (quit && init) {
    setenv("OPENBLAS_CORETYPE", core, 1);
    quit();
    init();
    if (before)
      setenv("OPENBLAS_CORETYPE", before, 1);
    else
      unsetenv("OPENBLAS_CORETYPE");
  }
  free(before);
}

static PetscBool core_is_one_of(const char *const *names)
{
  for (int i = 0; names[i]; i++)
    if (!strcmp(openblas_get_corename(), names[i])) return PETSC_TRUE;
  return PETSC_FALSE;
}

PetscBool TrsBlasSetup(const char *isa, char *text, size_t n)
{
  static const char *const avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
  static const char *const avx2[] = {"Haswell", "Zen", NULL};
  char config[64];

  if (!strcmp(isa, "avx512") && !core_is_one_of(avx512)) choose_core("SkylakeX");
  if (!strcmp(isa, "avx2") && !core_is_one_of(avx2)) choose_core("Haswell");
  snprintf(config, sizeof(config), "%s", openblas_get_config()); /* "OpenBLAS 0.3.21 NO_AFFINITY" */
  for (char *space = strchr(config, ' '); space; space = NULL) {
    char *end = strchr(space + 1, ' ');

    if (end) *end = 0;
  }
  snprintf(text, n, "%s %s", config, openblas_get_corename());
  return core_is_one_of(avx512);
}

/*
  OpenBLAS's BUFFER_SIZE on x86-64. Each thread that multiplies maps a buffer of this size. If
  mmap() fails, OpenBLAS retries forever.
*/
static const int64_t openblas_buffer_bytes = (int64_t)128 << 20;

/*
  Return the bytes that OpenBLAS will map: when it starts, a stack and a buffer for each of its own
  threads; later, buffers for our threads.
*/
static int64_t openblas_bytes(int n_threads)
{
  const int n_its_own = openblas_get_num_threads() - 1;
  pthread_attr_t attributes;
  size_t stack = 0;

  if (pthread_getattr_default_np(&attributes) == 0) {
    (void)pthread_attr_getstacksize(&attributes, &stack);
    (void)pthread_attr_destroy(&attributes);
  }
  return n_its_own * ((int64_t)stack + openblas_buffer_bytes) + n_threads * openblas_buffer_bytes;
}

/* Check that the limit of the address space (ulimit -v) allows mapping `bytes`. */
static PetscErrorCode check_space(int64_t bytes)
{
  struct rlimit limit;
  void *probe;

  PetscFunctionBegin;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    PetscFunctionReturn(PETSC_SUCCESS);
  probe = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
               0);
  PetscCheck(probe != MAP_FAILED, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "OpenBLAS needs %lld MiB more of address space, but the limit is %lld MiB in all (ulimit -v): "
             "raise it, "
             "or take fewer threads (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS)",
             (long long)(bytes >> 20), (long long)(limit.rlim_cur >> 20));
  (void)munmap(probe, (size_t)bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlasPrepare(int n_threads)
{
  PetscFunctionBegin;
  PetscCall(check_space(openblas_bytes(n_threads)));
  openblas_set_num_threads(1);
  PetscFunctionReturn(PETSC_SUCCESS);
}
#else
PetscBool TrsBlasSetup(const char *isa, char *text, size_t n)
{
  (void)isa;
  snprintf(text, n, "BLAS (not OpenBLAS)");
  return PETSC_FALSE;
}

PetscErrorCode TrsBlasPrepare(int n_threads)
{
  static const char *const names[] = {"flexiblas_set_num_threads", "MKL_Set_Num_Threads"};

  PetscFunctionBegin;
  (void)n_threads;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    void (*set_num_threads)(int);

    *(void **)&set_num_threads = dlsym(RTLD_DEFAULT, names[i]);
    if (set_num_threads) set_num_threads(1);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif
