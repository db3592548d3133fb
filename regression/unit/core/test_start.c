/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 */
#include "core/options/option_petsc.h"
#include "core/start.h"
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

/*
  The program's environment has no variable that would inject options or code into PETSc and HDF5.
*/
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
  /* this is an option of trshard */
  assert_int_equal(TrsOptionPetscKindOf("-device"), TRS_OPTION_NOT_PETSC);
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

/* Launchers are recognised by the environment variables that they set. */
static void test_one_host(void **state)
{
  static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK",
                                      "SLURM_STEP_NUM_NODES", "PMI_RANK"};
  static const struct {
    const char *value[5];
    PetscBool one_host;
  } launches[] = {
      /* mpirun */
      {{"2", "2", "0", NULL}, PETSC_TRUE},
      {{"2", "4", "0", NULL}, PETSC_FALSE},
      {{"2", "4", "0", "1"}, PETSC_FALSE}, /* mpirun, started from a task on one node */
      /* srun */
      {{NULL, NULL, "0", "1"}, PETSC_TRUE},
      {{NULL, NULL, "0", "2"}, PETSC_FALSE},
      {{NULL, NULL, "0", NULL}, PETSC_FALSE},       /* no launcher that the program knows */
      {{NULL, NULL, NULL, NULL, "0"}, PETSC_FALSE}, /* MPICH's mpiexec */
      /* started without a launcher */
      {{NULL, NULL, NULL, NULL}, PETSC_TRUE},
      {{NULL, NULL, NULL, "4"}, PETSC_TRUE},
  };
  char before[5][64] = {""};

  (void)state;
  for (int i = 0; i < 5; i++)
    snprintf(before[i], sizeof(before[i]), "%s", getenv(names[i]) ? getenv(names[i]) : "");
  for (size_t l = 0; l < sizeof(launches) / sizeof(launches[0]); l++) {
    for (int i = 0; i < 5; i++) {
      if (launches[l].value[i])
        setenv(names[i], launches[l].value[i], 1);
      else
        unsetenv(names[i]);
    }
    assert_int_equal(TrsStartOnOneHost(), launches[l].one_host);
  }
  for (int i = 0; i < 5; i++) {
    if (before[i][0])
      setenv(names[i], before[i], 1);
    else
      unsetenv(names[i]);
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_warning), cmocka_unit_test(test_one_host), cmocka_unit_test(test_closed),
              cmocka_unit_test(test_option_words), cmocka_unit_test(test_version))
