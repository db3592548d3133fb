/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests numbers and lists in the format of TorchRec's report. */
#include "plan/report_format.h"
#include "plan_units.h"

static void test_imbalance(void **state)
{
  json_t *root, *x, *section = json_object_get(units_section(&root, "report"), "imbalance");
  size_t i;

  (void)state;
  json_array_foreach(section, i, x)
  {
    const json_t *p = json_object_get(x, "p");
    int n = (int)json_array_size(p);
    double share[64];
    TrsImbalance found;

    assert_true(n <= 64);
    for (int k = 0; k < n; k++) share[k] = unit_at(p, (size_t)k);
    TrsMeasureImbalance(n, share, &found);
    assert_close(found.total_variation, unit_real(x, "Total Variation"), 1e-15, 1e-12);
    assert_close(found.total_distance, unit_real(x, "Total Distance"), 1e-15, 1e-12);
    assert_close(found.chi, unit_real(x, "Chi Divergence"), 1e-15, 1e-12);
    assert_close(found.kl, unit_real(x, "KL Divergence"), 1e-15, 1e-12);
  }
  json_decref(root);
}

static void test_numbers(void **state)
{
  json_t *root, *x, *section = units_section(&root, "report");
  char text[128];
  size_t i;

  (void)state;
  json_array_foreach(json_object_get(section, "one_sigfig"), i, x)
  {
    TrsOneDigitText(unit_at(x, 0), text, sizeof(text));
    assert_string_equal(text, json_string_value(json_array_get(x, 1)));
  }
  json_array_foreach(json_object_get(section, "perf_breakdown"), i, x)
  {
    const json_t *p = json_array_get(x, 0);
    TrsPerf perf = {unit_at(p, 0), unit_at(p, 1), unit_at(p, 2), unit_at(p, 3), unit_at(p, 4)};

    TrsPerfText(&perf, text, sizeof(text));
    assert_string_equal(text, json_string_value(json_array_get(x, 1)));
  }
  TrsRoundedText(0.745, 3, text, sizeof(text));
  assert_string_equal(text, "0.745"); /* examples of the format, written by hand */
  TrsRoundedText(0, 3, text, sizeof(text));
  assert_string_equal(text, "0.0");
  json_decref(root);
}

static void test_lists(void **state)
{
  json_t *root, *x, *section = units_section(&root, "report");
  size_t i;

  (void)state;
  json_array_foreach(json_object_get(section, "collapse_ranks"), i, x)
  {
    const json_t *list = json_array_get(x, 0), *parts = json_array_get(x, 1);
    int n = (int)json_array_size(list), ranks[64];
    TrsText found = {0}, expected = {0};

    for (int k = 0; k < n; k++) ranks[k] = (int)unit_at(list, (size_t)k);
    assert_petsc_ok(TrsRanksText(n, ranks, &found));
    for (size_t k = 0; k < json_array_size(parts); k++)
      assert_petsc_ok(
          TrsTextPrintf(&expected, "%s%s", k ? "," : "", json_string_value(json_array_get(parts, k))));
    assert_string_equal(found.data, expected.data);
    assert_petsc_ok(TrsTextFree(&found));
    assert_petsc_ok(TrsTextFree(&expected));
  }
  json_array_foreach(json_object_get(section, "reduce_int_list"), i, x)
  {
    const json_t *list = json_array_get(x, 0);
    int n = (int)json_array_size(list);
    int64_t numbers[64];
    TrsText found = {0};

    for (int k = 0; k < n; k++) numbers[k] = (int64_t)unit_at(list, (size_t)k);
    assert_petsc_ok(TrsReduceIntsText(n, numbers, &found));
    assert_string_equal(found.data ? found.data : "", json_string_value(json_array_get(x, 1)));
    assert_petsc_ok(TrsTextFree(&found));
  }
  json_decref(root);
}

/* Expected texts are written by hand. */
static void test_units(void **state)
{
  static const struct {
    double bytes;
    const char *text;
  } sizes[] = {{0, "0"},
               {1.5 * 1073741824, "1.5"},
               {27.18 * 1073741824, "27.2"},
               {2048.0 * 1073741824, "2048"},
               {1048576, "0.000977"}};
  static const struct {
    double bytes_per_ms;
    const char *text;
  } bandwidths[] = {{3.35e9, "3.35TB/s"},
                    {897 * 1073741824.0 / 1000, "897GiB/s"},
                    {12.5 * 1073741824.0 / 1000, "12.5GiB/s"},
                    {50e6, "50GB/s"},
                    {1, "0.001MB/s"}};
  char text[64];

  (void)state;
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    TrsGibText(sizes[i].bytes, text, sizeof(text));
    assert_string_equal(text, sizes[i].text);
  }
  for (size_t i = 0; i < sizeof(bandwidths) / sizeof(bandwidths[0]); i++) {
    TrsBandwidthText(bandwidths[i].bytes_per_ms, text, sizeof(text));
    assert_string_equal(text, bandwidths[i].text);
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_imbalance), cmocka_unit_test(test_numbers), cmocka_unit_test(test_lists),
              cmocka_unit_test(test_units))
