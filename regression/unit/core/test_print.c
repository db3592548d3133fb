/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Text from a file or an option cannot control a terminal when it is printed, and cannot look like a
  line of the program.
*/
#include "core/print.h"
#include "trs_test.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char hostile[] = "\x1b[2J\x1b]0;owned\x07u\nx";

static PetscErrorCode take(void *text, const char *bytes, size_t n)
{
  strncat((char *)text, bytes, n);
  return PETSC_SUCCESS;
}

static PetscErrorCode format(char *out, PetscBool petsc, const char *form, ...) PETSC_ATTRIBUTE_FORMAT(3, 4);

static PetscErrorCode format(char *out, PetscBool petsc, const char *form, ...)
{
  va_list arguments;
  PetscErrorCode ierr;

  out[0] = '\0';
  va_start(arguments, form);
  ierr = TrsPrintFormat(take, out, petsc, form, arguments);
  va_end(arguments);
  return ierr;
}

/* Every conversion that the program uses gives the same text as snprintf(). */
static void test_numbers(void **state)
{
  char got[512], want[512];

#define SAME(...) \
  do { \
    assert_petsc_ok(format(got, PETSC_FALSE, __VA_ARGS__)); \
    snprintf(want, sizeof(want), __VA_ARGS__); \
    assert_string_equal(got, want); \
  } while (0)
  (void)state;
  SAME("%d %5d|%-5d|%05d|%+d", 1, -2, 3, 4, 5);
  SAME("%" PRId64 " %" PRIu64 " %12" PRId64 " %016" PRIx64, INT64_MIN, UINT64_MAX, (int64_t)7, (uint64_t)255);
  SAME("%zu %td %hhu %hd %ld %lld %jd", (size_t)9, (ptrdiff_t)-9, (unsigned char)200, (short)-3, -5L, -6LL,
       (intmax_t)8);
  SAME("%.4g %g %e %6.2f %*.*f %.0f%%", 1.0 / 3, 3.0, 1e300, 2.5, 8, 3, 2.0, 99.9);
  SAME("%c%c %p", 'a', 'b', (void *)got);
  SAME("%-10s|%10s|%.2s|%-*s|%.*s|%s", "ab", "cd", "efg", 6, "hi", 1, "jkl", "");
  SAME("%f", 1e300);
#undef SAME
  assert_petsc_ok(format(got, PETSC_TRUE, "%g %s", 3.0, "x")); /* as PETSc prints */
  assert_string_equal(got, "3. x");
}

static void test_text(void **state)
{
  char got[512];

  (void)state;
  assert_petsc_ok(format(got, PETSC_FALSE, "a\n%s: %d\n", hostile, 7));
  assert_string_equal(got, "a\n\\x1b[2J\\x1b]0;owned\\x07u\n  x: 7\n");
  assert_petsc_ok(format(got, PETSC_FALSE, "%s", "one\ntwo \x1b[m\n"));
  assert_string_equal(got, "one\ntwo \\x1b[m\n");
}

static void test_stream(void **state)
{
  char got[256] = "";
  FILE *file = fmemopen(got, sizeof(got), "w");

  (void)state;
  TrsPrint(file, "%s", hostile);
  TrsPrintInstall();
  assert_petsc_ok(PetscFPrintf(PETSC_COMM_SELF, file, "|%s|%d", hostile, 5));
  TrsPrintRemove();
  (void)fclose(file);
  assert_null(strpbrk(got, "\x1b\a"));
  assert_non_null(strstr(got, "|5"));
}

/* A text reaches an unbuffered stream in one write, so that no other output can come between. */
static void test_one_piece(void **state)
{
  int ends[2];
  char got[256] = "";
  FILE *file;

  (void)state;
  assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
  file = fdopen(ends[1], "w");
  (void)setvbuf(file, NULL, _IONBF, 0);
  TrsPrint(file, "feature \"%s\" has id %d, %s\n", "item", 7, "not 8");
  assert_int_equal(read(ends[0], got, sizeof(got)), strlen("feature \"item\" has id 7, not 8\n"));
  TrsPrintInstall();
  assert_petsc_ok(PetscFPrintf(PETSC_COMM_SELF, file, "feature \"%s\" %d\n", "item", 7));
  TrsPrintRemove();
  assert_int_equal(read(ends[0], got, sizeof(got)), strlen("feature \"item\" 7\n"));
  (void)fclose(file);
  (void)close(ends[0]);
}

TRS_TEST_MAIN(cmocka_unit_test(test_numbers), cmocka_unit_test(test_text), cmocka_unit_test(test_stream),
              cmocka_unit_test(test_one_piece))
