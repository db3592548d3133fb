/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* RTLD_DEFAULT. NOLINT(bugprone-reserved-identifier) */
#include "compute/blas_library.h"

#include <cblas.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(TRS_BLAS_IS_OPENBLAS)
/*
  Make OpenBLAS choose again with OPENBLAS_CORETYPE=core. Every build with DYNAMIC_ARCH exports the
  two functions.
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
  openblas_set_num_threads(1);
  snprintf(config, sizeof(config), "%s", openblas_get_config()); /* "OpenBLAS 0.3.21 NO_AFFINITY" */
  for (char *space = strchr(config, ' '); space; space = NULL) {
    char *end = strchr(space + 1, ' ');

    if (end) *end = 0;
  }
  snprintf(text, n, "%s %s", config, openblas_get_corename());
  return core_is_one_of(avx512);
}
#else
PetscBool TrsBlasSetup(const char *isa, char *text, size_t n)
{
  static const char *const names[] = {"flexiblas_set_num_threads", "MKL_Set_Num_Threads"};

  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    void (*set_num_threads)(int);

    *(void **)&set_num_threads = dlsym(RTLD_DEFAULT, names[i]);
    if (set_num_threads) set_num_threads(1);
  }
  (void)isa;
  snprintf(text, n, "BLAS (not OpenBLAS)");
  return PETSC_FALSE;
}
#endif
