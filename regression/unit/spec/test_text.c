/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests that file names cannot do harm in reports and JSON. */
#include "spec/text.h"
#include "trs_test.h"

#include <string.h>

static void test_hostile(void **state)
{
  static const char hostile[] = "\x1b[2J\x1b]0;owned\x07u\nx";
  TrsText text = {.data = NULL};

  (void)state;
  assert_petsc_ok(TrsTextPrintf(&text, "%s|%-4s|", hostile, hostile));
  assert_null(strpbrk(text.data, "\x1b\a"));
  assert_petsc_ok(TrsTextFree(&text));
  assert_petsc_ok(TrsTextJsonString(&text, "\x1b\x7f\xc2\x9b\xe2\x80\xae\xc3\xa9\"\\"));
  assert_string_equal(text.data, "\"\\u001b\\u007f\\u009b\\u202e\xc3\xa9\\\"\\\\\"");
  assert_petsc_ok(TrsTextFree(&text));
}

TRS_TEST_MAIN(cmocka_unit_test(test_hostile))
