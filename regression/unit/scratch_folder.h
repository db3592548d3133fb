/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A temporary folder of the test program, the same on all ranks. It exists before the first test and
  is removed after the last one.

    #include "scratch_folder.h"
    TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(test_something), cmocka_unit_test(test_other))
*/
#pragma once

#include "trs_test.h"

static char folder[256], path[300]; /* the paths of the folder, and of a file run.h5 in it */

static void make_folder(void **state)
{
  const char *where = getenv("TMPDIR");

  (void)state;
  if (trs_rank() == 0) {
    snprintf(folder, sizeof(folder), "%s/trs_unit_XXXXXX", where ? where : "/tmp");
    assert_non_null(mkdtemp(folder));
  }
  MPI_Bcast(folder, (int)sizeof(folder), MPI_CHAR, 0, MPI_COMM_WORLD);
  snprintf(path, sizeof(path), "%s/run.h5", folder);
}

static void remove_folder(void **state)
{
  char command[400];

  (void)state;
  MPI_Barrier(MPI_COMM_WORLD);
  snprintf(command, sizeof(command), "rm -rf '%s'", folder);
  if (trs_rank() == 0) assert_int_equal(system(command), 0);
}

#define TRS_TEST_MAIN_IN_FOLDER(...) \
  TRS_TEST_MAIN(cmocka_unit_test(make_folder), __VA_ARGS__, cmocka_unit_test(remove_folder))
