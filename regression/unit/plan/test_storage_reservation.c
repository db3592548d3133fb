/* SPDX-License-Identifier: BSD-3-Clause */
/* Creates every kind of reservation from its options, and compares it with TorchRec's results. */
#include "plan/cost/storage_reservation.h"
#include "plan_units.h"

enum { MAX_WORDS = 64 };

static void set_up(const json_t *given, TrsOptions *options, TrsTableConfigs *tables, TrsTopology *topology,
                   TrsPlanSettings *settings)
{
  TrsTopologyDefaults defaults = {.is_cuda = PETSC_TRUE, .world_size = 1};
  static char storage[MAX_WORDS][128], program[] = "test";
  char *words[MAX_WORDS] = {program};
  int n = 1;
  const char *key;
  json_t *value;

  json_object_foreach((json_t *)(uintptr_t)given, key, value)
  {
    assert_true(n + 2 < MAX_WORDS);
    snprintf(storage[n], sizeof(storage[n]), "-%s", key);
    words[n] = storage[n];
    n++;
    if (json_is_string(value)) {
      snprintf(storage[n], sizeof(storage[n]), "%s", json_string_value(value));
    } else if (json_is_integer(value)) {
      snprintf(storage[n], sizeof(storage[n]), "%lld", (long long)json_integer_value(value));
    } else {
      snprintf(storage[n], sizeof(storage[n]), "%.17g", json_number_value(value));
    }
    words[n] = storage[n];
    n++;
  }
  assert_petsc_ok(units_options(n, words, options));
  assert_petsc_ok(TrsTableConfigsFromOptions(*options, NULL, tables));
  assert_petsc_ok(TrsTopologyFromOptions(*options, &defaults, topology));
  assert_petsc_ok(TrsPlanSettingsFromOptions(*options, settings));
}

static void check_term(const TrsStorage *found, const json_t *expected)
{
  if (json_is_null(expected)) return; /* TorchRec has no such term in this case */
  assert_int_equal(found->hbm, unit_int(expected, "hbm"));
  assert_int_equal(found->ddr, unit_int(expected, "ddr"));
}

static void test_reservations(void **state)
{
  json_t *root, *x, *section = units_section(&root, "storage_reservation");
  size_t i;

  (void)state;
  json_array_foreach(section, i, x)
  {
    const json_t *expected = json_object_get(x, "result_per_device");
    TrsOptions options;
    TrsTableConfigs tables;
    TrsTopology topology;
    TrsPlanSettings settings;
    TrsReservation reservation;

    set_up(json_object_get(x, "options"), &options, &tables, &topology, &settings);
    assert_petsc_ok(TrsReserve(&(TrsCostModel){&topology, &settings, &tables, NULL}, &reservation));
    for (int r = 0; r < topology.world_size; r++) {
      assert_int_equal(reservation.left[r].hbm, unit_int(expected, "hbm"));
      assert_int_equal(reservation.left[r].ddr, unit_int(expected, "ddr"));
    }
    check_term(&reservation.dense, json_object_get(expected, "dense"));
    check_term(&reservation.kjt, json_object_get(expected, "kjt"));
    assert_petsc_ok(TrsReservationFree(&reservation));
    assert_petsc_ok(TrsTopologyFree(&topology));
    assert_petsc_ok(TrsTableConfigsFree(&tables));
    assert_petsc_ok(TrsOptionsDestroy(&options));
  }
  json_decref(root);
}

TRS_TEST_MAIN(cmocka_unit_test(test_reservations))
