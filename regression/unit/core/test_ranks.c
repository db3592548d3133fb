/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/* Tests errors, memory, agreement and options in a process that starts neither MPI nor PETSc. */
#include "core/options/options.h"
#include "core/ranks.h"
#include "trs_test.h"

#include <pthread.h>
#include <string.h>

static PetscErrorCode fail_with(PetscErrorCode code, const char *text)
{
  PetscFunctionBegin;
  SETERRQ(PETSC_COMM_SELF, code, "%s", text);
}

static PetscErrorCode allocate(size_t bytes)
{
  char *data, *copy;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(bytes, &data));
  PetscCall(PetscStrallocpy("text", &copy));
  PetscCall(PetscFree(copy));
  PetscCall(PetscFree(data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_errors(void **state)
{
  (void)state;
  assert_int_equal(fail_with(TRS_ERR_DATA, "row 7 of %n /sparse"), TRS_ERR_DATA);
  assert_string_equal(TrsErrorMessage(), "row 7 of %n /sparse");
  assert_non_null(strstr(TrsErrorTrace(), "fail_with() at "));
  TrsErrorClear();
  assert_string_equal(TrsErrorMessage(), "");
  assert_petsc_ok(TrsErrorInstall());
  assert_petsc_ok(TrsErrorRemove());
}

/* PETSc 3.18 returns the line number of the call that failed to allocate memory. */
static void test_no_memory(void **state)
{
  (void)state;
  assert_petsc_ok(allocate(100));
  assert_int_equal(allocate((size_t)1 << 60), PETSC_ERR_MEM);
  assert_string_equal(TrsErrorMessage(), "out of memory");
  TrsErrorClear();
}

static void *fail_elsewhere(void *code)
{
  *(int *)code = (int)fail_with(TRS_ERR_IO, "another thread's");
  return strcmp(TrsErrorMessage(), "another thread's") == 0 ? code : NULL;
}

static void test_threads(void **state)
{
  pthread_t thread;
  void *same;
  int code = 0;

  (void)state;
  assert_int_equal(fail_with(TRS_ERR_DATA, "of this thread"), TRS_ERR_DATA);
  assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &code), 0);
  assert_int_equal(pthread_join(thread, &same), 0);
  assert_ptr_equal(same, &code);
  assert_int_equal(code, TRS_ERR_IO);
  assert_string_equal(TrsErrorMessage(), "of this thread");
  TrsErrorClear();
}

static void test_alone(void **state)
{
  int rank = 7, size = 7, value = 5;

  (void)state;
  assert_petsc_ok(TrsRankOf(MPI_COMM_SELF, &rank, &size));
  assert_int_equal(rank, 0);
  assert_int_equal(size, 1);
  assert_petsc_ok(TrsBroadcast(MPI_COMM_SELF, &value, (int64_t)sizeof(value)));
  assert_int_equal(value, 5);
  assert_petsc_ok(TrsAgree(MPI_COMM_SELF, PETSC_SUCCESS));
  assert_int_equal(TrsAgree(MPI_COMM_SELF, fail_with(TRS_ERR_NO_INPUT, "no file")), TRS_ERR_NO_INPUT);
  assert_string_equal(TrsErrorMessage(), "no file");
  TrsErrorClear();
}

static void test_options(void **state)
{
  static const TrsOptionSpec specs[] = {{"-rows", TRS_OPTION_INT, "3", "[1,]", NULL, NULL, "rows"}};
  static const TrsOptionGroup group = TRS_OPTION_GROUP("Test", specs);
  static const TrsOptionGroup *const groups[] = {&group};
  char program[] = "test", name[] = "-rows", value[] = "12", view[] = "-log_view", wrong[] = "-rowz";
  char *words[] = {program, name, value, view, NULL}, *unknown[] = {program, wrong, value, NULL};
  TrsOptions options = NULL;
  int64_t rows;

  (void)state;
  assert_petsc_ok(TrsOptionsCreate(MPI_COMM_SELF, 4, words, groups, 1, &options));
  assert_petsc_ok(TrsOptionsGetInt(options, "-rows", &rows, NULL));
  assert_int_equal(rows, 12);
  assert_petsc_ok(TrsOptionsDestroy(&options));
  assert_int_equal(TrsOptionsCreate(MPI_COMM_SELF, 3, unknown, groups, 1, &options), TRS_ERR_OPTION);
  assert_non_null(strstr(TrsErrorMessage(), "-rowz"));
  TrsErrorClear();
  assert_petsc_ok(TrsOptionsDestroy(&options));
}

static void test_nothing_started(void **state)
{
  int started;

  (void)state;
  assert_int_equal(MPI_Initialized(&started), MPI_SUCCESS);
  assert_false(started);
  assert_false(PetscInitializeCalled);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors),  cmocka_unit_test(test_no_memory),
                                     cmocka_unit_test(test_threads), cmocka_unit_test(test_alone),
                                     cmocka_unit_test(test_options), cmocka_unit_test(test_nothing_started)};

  return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
