/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Code that all unit tests share: cmocka with its headers in the right order, assertions for PETSc's
  error codes, golden files, and main().

    #include "trs_test.h"
    static void test_something(void **state) { (void)state; assert_petsc_ok(TrsX(...)); }
    TRS_TEST_MAIN(cmocka_unit_test(test_something), cmocka_unit_test(test_other))

  If a test fails on a rank, this rank ends the job after its group of tests, so that the other
  ranks do not wait for it.
*/
#pragma once

#include "core/error.h"
#include "core/start.h"

/* cmocka needs these four headers before its own header */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>

/* Assert that the call succeeds. If it fails, show its message. */
#define assert_petsc_ok(call) trs_assert_petsc((call), PETSC_SUCCESS, #call, __FILE__, __LINE__)

/*
  Assert that the call fails with this TRS_ERR_ code. TrsErrorMessage() keeps its message until the
  next assert_petsc_...
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

/*
  Assert that |found - expected| <= atol + rtol * |expected|, with an absolute and a relative
  tolerance.
*/
#define assert_close(found, expected, atol, rtol) \
  trs_assert_close((double)(found), (double)(expected), (atol), (rtol), #found, __FILE__, __LINE__)

static inline void trs_assert_close(double found, double expected, double atol, double rtol, const char *what,
                                    const char *file, int line)
{
  double difference = found > expected ? found - expected : expected - found;
  double size = expected < 0 ? -expected : expected;

  if (difference <= atol + rtol * size) return; /* this comparison is false for NaN */
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
  Path of a golden file in $TRSHARD_GOLDEN if this is set, and in the project's golden/<folder> if
  not. The text is valid until the 4th call after this one.
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

/* For example trs_golden("units_kjt.h5"). */
static inline const char *trs_golden(const char *file)
{
  return trs_golden_in("runtime", file);
}

/*
  The main() of a test program: it starts the program, runs the tests and stops. The exit status is
  0 if all tests passed on all ranks.
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
