/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 */
#include "core/option_petsc.h"
#include "core/version.h"
#include "trs_test.h"

#include <string.h>

static void test_warning(void **state)
{
  char text[128];

  (void)state;
  unsetenv("SLURM_NTASKS");
  TrsStartWarning(text, sizeof(text));
  assert_string_equal(text, "");
  setenv("SLURM_NTASKS", "4", 1);
  TrsStartWarning(text, sizeof(text));
  assert_string_equal(text, trs_size() == 1 ? "Slurm has 4 tasks but MPI sees one: use srun --mpi=pmix" : "");
  setenv("SLURM_NTASKS", "1", 1);
  TrsStartWarning(text, sizeof(text));
  assert_string_equal(text, "");
  unsetenv("SLURM_NTASKS");
}

/* Nothing that would bring options or code into PETSc and HDF5 is left in the environment. */
static void test_closed(void **state)
{
  PetscBool found;

  (void)state;
  assert_null(getenv("PETSC_OPTIONS"));
  assert_null(getenv("HDF5_PLUGIN_PATH"));
  assert_petsc_ok(PetscOptionsHasName(NULL, NULL, "-skip_petscrc", &found));
  assert_true(found);
}

static void test_option_words(void **state)
{
  (void)state;
  assert_true(TrsIsOptionWord("-batch_size") && TrsIsOptionWord("--help"));
  assert_false(TrsIsOptionWord("-1") || TrsIsOptionWord("-.5") || TrsIsOptionWord("-") ||
               TrsIsOptionWord("x") || TrsIsOptionWord(""));
  assert_int_equal(TrsOptionPetscKindOf("-LOG_view"), TRS_OPTION_PETSC);
  assert_int_equal(TrsOptionPetscKindOf("-malloc_debug"), TRS_OPTION_PETSC_EARLY);
  assert_int_equal(TrsOptionPetscKindOf("-device_view_cuda"), TRS_OPTION_PETSC_EARLY);
  assert_int_equal(TrsOptionPetscKindOf("-device"), TRS_OPTION_NOT_PETSC); /* ours */
  assert_int_equal(TrsOptionPetscKindOf("-debugger_ranks"), TRS_OPTION_PETSC_REFUSED);
}

static void test_version(void **state)
{
  char text[256];

  (void)state;
  assert_true(TrsVersionCommit()[0] != '\0');
  TrsVersionLibraries(text, sizeof(text));
  assert_non_null(strstr(text, ", PETSc 3."));
  assert_null(strchr(text, '\n'));
}

TRS_TEST_MAIN(cmocka_unit_test(test_warning), cmocka_unit_test(test_closed),
              cmocka_unit_test(test_option_words), cmocka_unit_test(test_version))
