/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Code that all unit tests share: cmocka with its headers in the right order, PETSc-aware
  assertions, golden files, and the program's frame.

    #include "trs_test.h"
    static void test_something(void **state) { (void)state; assert_petsc_ok(TrsX(...)); }
    TRS_TEST_MAIN(cmocka_unit_test(test_something), cmocka_unit_test(test_other))

  If a test fails on a rank, the rank ends the job at the end of its group, so that the other ranks
  do not wait for it.
*/
#pragma once

#include "core/error.h"
#include "core/start.h"

/* cmocka needs these four before its header */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>

/* Assert that the call succeeds; otherwise show its message. */
#define assert_petsc_ok(call) trs_assert_petsc((call), PETSC_SUCCESS, #call, __FILE__, __LINE__)

/*
  Assert that the call fails with this TRS_ERR_ code. Its message stays in TrsErrorMessage() until
  the next assert_petsc_...
*/
#define assert_petsc_error(call, code) \
  do { \
    TrsErrorClear(); \
    trs_assert_petsc((call), (code), #call, __FILE__, __LINE__); \
  } while (0)

static inline void trs_assert_petsc(PetscErrorCode found, PetscErrorCode expected, const char *call,
                                    const char *file, int line)
{
  if (found == expected) return;
  print_error("%s returned %d, not %d: %s%s\n", call, found, expected, TrsErrorMessage(), TrsErrorTrace());
  TrsErrorClear();
  _fail(file, line);
}

/* Absolute and relative tolerance: |found - expected| <= atol + rtol * |expected|. */
#define assert_close(found, expected, atol, rtol) \
  trs_assert_close((double)(found), (double)(expected), (atol), (rtol), #found, __FILE__, __LINE__)

static inline void trs_assert_close(double found, double expected, double atol, double rtol, const char *what,
                                    const char *file, int line)
{
  double difference = found > expected ? found - expected : expected - found;
  double size = expected < 0 ? -expected : expected;

  if (difference <= atol + rtol * size) return; /* false for NaN */
  print_error("%s is %.17g, expected %.17g\n", what, found, expected);
  _fail(file, line);
}

static inline int trs_rank(void)
{
  int rank = 0;

  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

static inline int trs_size(void)
{
  int size = 1;

  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/*
  Path of a golden file, in $TRSHARD_GOLDEN or else in the project's golden/<folder>. The text is
  valid until the 4th next call.
*/
static inline const char *trs_golden_in(const char *folder, const char *file)
{
  static char path[4][4096];
  static int next = 0;
  const char *given = getenv("TRSHARD_GOLDEN");

  next = (next + 1) % 4;
  if (given && *given) {
    snprintf(path[next], sizeof(path[next]), "%s/%s", given, file);
  } else {
    snprintf(path[next], sizeof(path[next]), "%s/%s/%s", TRS_GOLDEN_DEFAULT, folder, file);
  }
  return path[next];
}

/* trs_golden("units_kjt.h5") */
static inline const char *trs_golden(const char *file)
{
  return trs_golden_in("runtime", file);
}

/*
  The frame of a test program: start, run, stop. The exit status is 0 if all tests passed on all
  ranks.
*/
#define TRS_TEST_MAIN(...) \
  int main(int argc, char **argv) \
  { \
    const struct CMUnitTest tests[] = {__VA_ARGS__}; \
    int n_failed; \
\
    if (TrsStart(argc, argv) != PETSC_SUCCESS) return 70; \
    n_failed = cmocka_run_group_tests(tests, NULL, NULL); \
    if (n_failed) MPI_Abort(MPI_COMM_WORLD, 1); \
    return TrsStop(PETSC_FALSE) ? 70 : 0; \
  }
