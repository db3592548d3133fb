/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/* Expected codes and texts are written by hand from the documented table of exit codes. */
#include "core/names.h"
#include "trs_test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static PetscErrorCode fail_with(PetscErrorCode code, const char *text)
{
  PetscFunctionBegin;
  SETERRQ(PETSC_COMM_SELF, code, "%s", text);
}

static PetscErrorCode fail_below(PetscErrorCode code, const char *text)
{
  PetscFunctionBegin;
  PetscCall(fail_with(code, text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_first_message_stays(void **state)
{
  (void)state;
  TrsErrorClear();
  assert_string_equal(TrsErrorMessage(), "");
  assert_int_equal(fail_below(TRS_ERR_DATA, "row 7 of %n /sparse"), TRS_ERR_DATA);
  assert_string_equal(TrsErrorMessage(), "row 7 of %n /sparse");
  assert_int_equal(fail_with(TRS_ERR_IO, "a second one"), TRS_ERR_IO);
  assert_string_equal(TrsErrorMessage(), "row 7 of %n /sparse");
  TrsErrorClear();
  assert_string_equal(TrsErrorMessage(), "");
}

static void test_exit_status(void **state)
{
  (void)state;
  assert_int_equal(TrsExitStatus(PETSC_SUCCESS), 0);
  assert_int_equal(TrsExitStatus(TRS_ERR_OPTION), 64);
  assert_int_equal(TrsExitStatus(TRS_ERR_NOT_FINITE), 78);
  assert_int_equal(TrsExitStatus(PETSC_ERR_MEM), 71);
  assert_int_equal(TrsExitStatus(PETSC_ERR_LIB), 70);
}

/* PETSc 3.18 returns different codes for failed allocations. */
static void test_no_memory(void **state)
{
  char *data = NULL;
  PetscErrorCode ierr = PetscMalloc((size_t)1 << 60, &data);

  (void)state;
  assert_int_equal(TrsExitStatus(ierr), 71);
  assert_string_equal(TrsErrorMessage(), "out of memory");
  TrsErrorClear();
  assert_int_equal(TrsExitStatus(PetscRealloc((size_t)1 << 60, &data)), 71);
  TrsErrorClear();
}

static void test_agree(void **state)
{
  (void)state;
  TrsErrorClear();
  assert_petsc_ok(TrsAgree(PETSC_COMM_WORLD, PETSC_SUCCESS));
  for (int failing = 0; failing < trs_size();
       failing++) { /* all ranks from `failing` on fail, and the lowest rank's error is reported */
    PetscErrorCode ierr = PETSC_SUCCESS;
    char text[32], expected[32];

    snprintf(text, sizeof(text), "rank %d", trs_rank());
    snprintf(expected, sizeof(expected), "rank %d", failing);
    if (trs_rank() >= failing) ierr = fail_with(trs_rank() == failing ? TRS_ERR_DATA : TRS_ERR_IO, text);
    assert_int_equal(TrsAgree(PETSC_COMM_WORLD, ierr), TRS_ERR_DATA);
    assert_string_equal(TrsErrorMessage(), expected);
    TrsErrorClear();
  }
  assert_petsc_ok(TrsAgree(PETSC_COMM_WORLD, PETSC_SUCCESS));
}

/* Long texts are cut off, but not lost. */
static void test_agree_long(void **state)
{
  char text[5000];
  PetscErrorCode ierr = PETSC_SUCCESS;

  (void)state;
  memset(text, 'x', sizeof(text) - 1);
  text[sizeof(text) - 1] = '\0';
  if (trs_rank() == trs_size() - 1) ierr = fail_with(TRS_ERR_IO, text);
  assert_int_equal(TrsAgree(PETSC_COMM_WORLD, ierr), TRS_ERR_IO);
  assert_in_range(strlen(TrsErrorMessage()), 1000, 2048);
  TrsErrorClear();
}

/* Run TrsErrorFinish() with stderr redirected to a pipe, and store rank 0's output in `text`. */
static int finish(PetscErrorCode ierr, char *text, size_t n)
{
  int pipe_fd[2], saved = dup(2), status;
  ssize_t got;

  fflush(stderr);
  if (pipe(pipe_fd) != 0 || saved < 0) return -1;
  dup2(pipe_fd[1], 2);
  status = TrsErrorFinish(MPI_COMM_WORLD, ierr);
  dup2(saved, 2);
  close(saved);
  close(pipe_fd[1]);
  got = read(pipe_fd[0], text, n - 1);
  text[got > 0 ? got : 0] = '\0';
  close(pipe_fd[0]);
  TrsErrorClear();
  return status;
}

static void test_finish(void **state)
{
  char text[4096];
  PetscErrorCode ierr;
  int last = trs_size() - 1;

  (void)state;
  TrsErrorClear();
  assert_int_equal(finish(PETSC_SUCCESS, text, sizeof(text)), 0);
  assert_string_equal(text, "");

  ierr = trs_rank() == last ? fail_with(TRS_ERR_DATA, "bad \033[2J row") : PETSC_SUCCESS;
  assert_int_equal(finish(TrsAgree(MPI_COMM_WORLD, ierr), text, sizeof(text)), 65);
#if defined(NDEBUG) /* a Debug build adds a traceback */
  assert_string_equal(text, trs_rank() == 0 ? "trshard: error: bad \\x1b[2J row\n" : "");
#endif

  ierr = trs_rank() == last ? fail_with(PETSC_ERR_LIB, "surprise")
                            : PETSC_SUCCESS; /* the other ranks succeed */
  assert_int_equal(finish(ierr, text, sizeof(text)), 70);
#if defined(NDEBUG)
  assert_string_equal(text,
                      trs_rank() == 0 ? "trshard: error: surprise (internal error, please report)\n" : "");
#endif
}

static void test_escape(void **state)
{
  char out[64];

  (void)state;
  /* e with acute accent, and euro sign */
  TrsNameEscape("plain \xC3\xA9 \xE2\x82\xAC", out, sizeof(out));
  assert_string_equal(out, "plain \xC3\xA9 \xE2\x82\xAC");
  TrsNameEscape("a\033b\rc\td\x7F", out, sizeof(out));
  assert_string_equal(out, "a\\x1bb\\x0dc\\x09d\\x7f");
  TrsNameEscape("a\nb", out, sizeof(out));
  assert_string_equal(out, "a\n  b");
  TrsNameEscape("\xE2\x80\xAEx \xC0\x80 \xFF", out,
                sizeof(out)); /* right-to-left override, overlong 0, and bytes that are not UTF-8 */
  assert_string_equal(out, "\\xe2\\x80\\xaex \\xc0\\x80 \\xff");
  TrsNameEscape("0123456789", out, 5);
  assert_string_equal(out, "0123");
}

static void test_distance(void **state)
{
  static const char *const names[] = {"-batch_size", "-steps", "-epochs"};

  (void)state;
  assert_int_equal(TrsNameDistance("kitten", "sitting"), 3); /* the textbook's example */
  assert_int_equal(TrsNameDistance("", "abc"), 3);
  assert_int_equal(TrsNameDistance("ABC", "abc"), 0);
  assert_int_equal(TrsNameDistance("abcd", "acbd"), 1); /* two adjacent letters swapped */
  assert_int_equal(TrsNameClosest("-bacth_size", 3, names), 0);
  assert_int_equal(TrsNameClosest("-epoch", 3, names), 2);
  assert_int_equal(TrsNameClosest("x", 0, names), -1);
}

TRS_TEST_MAIN(cmocka_unit_test(test_first_message_stays), cmocka_unit_test(test_exit_status),
              cmocka_unit_test(test_no_memory), cmocka_unit_test(test_agree),
              cmocka_unit_test(test_agree_long), cmocka_unit_test(test_finish), cmocka_unit_test(test_escape),
              cmocka_unit_test(test_distance))
