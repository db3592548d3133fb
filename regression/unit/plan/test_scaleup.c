/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares the parts of embedding_offload_scaleup with TorchRec's results. */
#include "plan/search/luus_jaakola.h"
#include "plan/search/proposer_scaleup.h"
#include "plan_units.h"

static void test_random(void **state)
{
  json_t *root, *section = units_section(&root, "mt19937_float32");
  const json_t *values = json_object_get(section, "values");
  TrsMersenne generator;

  (void)state;
  TrsMersenneSeed(&generator, (uint32_t)unit_int(section, "seed"));
  for (size_t i = 0; i < json_array_size(values); i++)
    assert_close(TrsMersenneUniform(&generator), unit_at(values, i), 0, 0);
  json_decref(root);
}

static void test_search(void **state)
{
  json_t *root, *x, *section = units_section(&root, "luus_jaakola");
  size_t i;

  (void)state;
  json_array_foreach(section, i, x)
  {
    const json_t *probes = json_object_get(x, "probes"), *costs = json_object_get(x, "costs_fed_back");
    TrsLuusJaakola search;
    double cost = 0, probe;

    TrsLuusJaakolaStart(&search, unit_real(x, "A"), unit_real(x, "B"), (int)unit_int(x, "max_iterations"),
                        (uint32_t)unit_int(x, "seed"),
                        (PetscBool)!json_is_null(json_object_get(x, "left_cost")));
    for (size_t k = 0; k < json_array_size(probes); k++) {
      assert_true(TrsLuusJaakolaNext(&search, cost, &probe));
      assert_close(probe, unit_at(probes, k), 1e-9, 1e-12);
      if (costs) {
        cost = unit_at(costs, k);
      } else if (probe > 4e8) { /* in the case without costs, no proposal above 4e8 bytes fits */
        TrsLuusJaakolaShrinkRight(&search, probe);
        cost = 1e99;
      } else {
        cost = 1 - probe / 1e9;
      }
    }
    assert_false(TrsLuusJaakolaNext(&search, cost, &probe));
  }
  json_decref(root);
}

/* The search ends if both ends are known and meet. TorchRec would draw forever. */
static void test_search_ends(void **state)
{
  TrsLuusJaakola search;
  double probe;

  (void)state;
  TrsLuusJaakolaStart(&search, 5, 5, 16, 42, PETSC_TRUE);
  assert_true(TrsLuusJaakolaNext(&search, 0, &probe));
  assert_false(TrsLuusJaakolaNext(&search, 0, &probe));
}

static void test_budget(void **state)
{
  json_t *root, *x, *section = units_section(&root, "allocate_budget");
  size_t i;

  (void)state;
  json_array_foreach(section, i, x)
  {
    const json_t *model = json_object_get(x, "model_float32"),
                 *expected = json_object_get(x, "new_clfs_float32");
    int n = (int)json_array_size(expected);
    TrsScaleupTable *table = calloc((size_t)n, sizeof(*table));

    for (int k = 0; k < n; k++) {
      size_t t = (size_t)k;

      table[k] = (TrsScaleupTable){(float)unit_at(json_array_get(model, t), 0),
                                   (float)unit_at(json_array_get(model, t), 1),
                                   (int64_t)unit_at(json_object_get(x, "fused_hbm_ceiling"), t),
                                   (float)unit_at(json_object_get(x, "clfs_float32"), t),
                                   (float)unit_at(json_object_get(x, "priority_float32"), t)};
    }
    assert_petsc_ok(TrsAllocateBudget(n, table, unit_real(x, "budget")));
    for (int k = 0; k < n; k++) assert_close(table[k].load_factor, unit_at(expected, (size_t)k), 0, 1e-6);
    free(table);
  }
  json_decref(root);
}

TRS_TEST_MAIN(cmocka_unit_test(test_random), cmocka_unit_test(test_search),
              cmocka_unit_test(test_search_ends), cmocka_unit_test(test_budget))
