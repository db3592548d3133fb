/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/* Two mappings agree if they give the same ids and values to the same rows. Texts are by hand. */
#include "spec/mapping.h"
#include "trs_test.h"

#include <string.h>

#define HEAD "{\"format\":\"trshard-mapping\",\"version\":1,"
#define DENSE \
  "\"dense\":[{\"name\":\"age\",\"log1p\":true},{\"name\":\"price\"},{\"name\":\"hour\",\"missing\":0}]"
#define ITEM      "{\"name\":\"item\",\"kind\":\"text\",\"rows\":30,\"modulo\":true,\"column\":\"i\"}"
#define OF(items) HEAD DENSE ",\"sparse\":[" items "]}"

/* Assert that the texts have this difference, "" for none, in both directions. */
static void assert_used(const char *a, const char *b, const TrsMappingUse *use, const char *expected,
                        const char *backwards)
{
  const TrsMapping x = {"x.h5", a}, y = {"y.h5", b};
  char text[TRS_MAPPING_TEXT];

  assert_petsc_ok(TrsMappingDifference(&x, &y, use, text));
  assert_string_equal(text, expected);
  assert_petsc_ok(TrsMappingDifference(&y, &x, use, text));
  assert_string_equal(text, backwards);
  if (!expected[0]) {
    assert_petsc_ok(TrsMappingCompare(&x, &y, use));
    return;
  }
  assert_petsc_error(TrsMappingCompare(&x, &y, use), TRS_ERR_DATA);
  assert_non_null(strstr(TrsErrorMessage(), "x.h5 and y.h5"));
  assert_non_null(strstr(TrsErrorMessage(), expected));
}

/* Like assert_used(), for n dense features and all sparse features. */
static void assert_difference(const char *a, const char *b, int n, const int *dense, const char *expected,
                              const char *backwards)
{
  const TrsMappingUse use = {.n_dense = n, .dense = dense};

  assert_used(a, b, &use, expected, backwards);
}

static void test_equal(void **state)
{
  static const int last = 2;

  (void)state;
  assert_difference(OF(ITEM), OF(ITEM), 3, NULL, "", "");
  assert_difference(OF(ITEM), NULL, 3, NULL, "", "");
  /* columns, unknown keys and features of only one file do not count */
  assert_difference(OF(ITEM),
                    OF("{\"name\":\"new\"},{\"column\":\"j\",\"name\":\"item\",\"kind\":\"text\",\"rows\":30,"
                       "\"modulo\":true,\"later\":1}"),
                    3, NULL, "", "");
  /* defaults are the same as missing keys, and 0 as 0.0 */
  assert_difference(HEAD "\"dense\":[{\"name\":\"a\",\"missing\":0,\"unit\":null,\"log1p\":false}]}",
                    HEAD "\"dense\":[{\"name\":\"a\",\"missing\":0.0}]}", 1, NULL, "", "");
  /* rows are only a bound; a column without values has any kind */
  assert_difference(HEAD "\"sparse\":[{\"name\":\"u\",\"kind\":\"integer\",\"rows\":5}]}",
                    HEAD "\"sparse\":[{\"name\":\"u\",\"kind\":\"any\",\"rows\":7}]}", 0, NULL, "", "");
  /* only the chosen dense features are compared */
  assert_difference(OF(ITEM),
                    HEAD "\"dense\":[{\"name\":\"x\"},{\"name\":\"y\"},{\"name\":\"hour\",\"missing\":0}]}",
                    1, &last, "", "");
  assert_difference(OF(ITEM), HEAD "\"dense\":[]}", 0, NULL, "", "");
}

static void test_different(void **state)
{
  (void)state;
  assert_difference(OF(ITEM), HEAD "\"dense\":[{\"name\":\"price\"}]}", 1, NULL,
                    "dense feature 0: name is \"age\" and \"price\"",
                    "dense feature 0: name is \"price\" and \"age\"");
  assert_difference(OF(ITEM), OF("{\"name\":\"item\",\"kind\":\"text\",\"rows\":31,\"modulo\":true}"), 3,
                    NULL, "feature \"item\": rows is 30 and 31", "feature \"item\": rows is 31 and 30");
  assert_difference(OF("{\"name\":\"u\",\"rows\":5,\"unknown\":4}"),
                    OF("{\"name\":\"u\",\"rows\":6,\"unknown\":4}"), 3, NULL,
                    "feature \"u\": rows is 5 and 6", "feature \"u\": rows is 6 and 5");
  assert_difference(OF("{\"name\":\"u\",\"vocabulary\":[\"a\",\"b\"]}"),
                    OF("{\"name\":\"u\",\"vocabulary\":[\"a\"]}"), 3, NULL,
                    "feature \"u\": word 1 of the vocabulary is \"b\" and not given",
                    "feature \"u\": word 1 of the vocabulary is not given and \"b\"");
  assert_difference(HEAD "\"time\":{\"kind\":\"integer\",\"unit\":\"s\"}}",
                    HEAD "\"time\":{\"kind\":\"integer\",\"unit\":\"ms\"}}", 0, NULL,
                    "time: unit is \"s\" and \"ms\"", "time: unit is \"ms\" and \"s\"");
}

/* A feature that the model does not use may differ. */
static void test_used(void **state)
{
  static char u[] = "u", w[] = "w", *features[] = {u, w};
  static const char a[] = OF("{\"name\":\"u\"}," ITEM), b[] = OF(ITEM ",{\"name\":\"u\",\"missing\":0}");
  static const char other_item[] = OF("{\"name\":\"item\"},{\"name\":\"u\"}");
  TrsTableConfig table = {.n_features = 2, .features = features};
  const TrsTableConfigs tables = {.n = 1, .table = &table}, no_tables = {.n = 0};
  const TrsMappingUse use = {.tables = &tables}, none = {.tables = &no_tables};

  (void)state;
  assert_used(a, b, &use, "feature \"u\": missing is not given and 0",
              "feature \"u\": missing is 0 and not given");
  assert_used(a, other_item, &use, "", "");
  assert_used(a, b, &none, "", "");
}

static void test_damaged(void **state)
{
  static const char *const bad[] = {"",
                                    "{",
                                    "[]",
                                    "{}",
                                    HEAD "\"dense\":{}}",
                                    HEAD "\"sparse\":[3]}",
                                    OF(ITEM "," ITEM),
                                    HEAD "\"sparse\":[{\"name\":1}]}",
                                    "{\"format\":\"trshard-mapping\",\"version\":2}",
                                    "{\"format\":\"trshard-mapping\",\"version\":\"1\"}"};
  const TrsMapping good = {"good.h5", OF(ITEM)};
  char text[TRS_MAPPING_TEXT];

  (void)state;
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    const TrsMapping mapping = {"bad.h5", bad[i]};

    assert_petsc_error(TrsMappingCheck(&mapping, -1), TRS_ERR_DATA);
    assert_non_null(strstr(TrsErrorMessage(), "bad.h5"));
    assert_petsc_error(TrsMappingDifference(&good, &mapping, &(TrsMappingUse){.n_dense = 0}, text),
                       TRS_ERR_DATA);
  }
  assert_petsc_ok(TrsMappingCheck(&good, 3));
  assert_petsc_error(TrsMappingCheck(&good, 2), TRS_ERR_DATA);
}

static void test_names(void **state)
{
  static const int chosen[] = {2, 0};
  const TrsMapping mapping = {"a.h5", OF(ITEM)}, none = {"b.h5", NULL};
  char **names;

  (void)state;
  assert_petsc_ok(TrsMappingDenseNames(&mapping, 2, chosen, &names));
  assert_string_equal(names[0], "hour");
  assert_string_equal(names[1], "age");
  assert_petsc_ok(PetscFree(names));
  assert_petsc_ok(TrsMappingDenseNames(&none, 2, chosen, &names));
  assert_null(names);
  assert_petsc_error(TrsMappingDenseNames(&mapping, 4, NULL, &names), TRS_ERR_DATA);
}

TRS_TEST_MAIN(cmocka_unit_test(test_equal), cmocka_unit_test(test_different), cmocka_unit_test(test_used),
              cmocka_unit_test(test_damaged), cmocka_unit_test(test_names))
