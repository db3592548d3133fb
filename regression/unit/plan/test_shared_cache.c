/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares hit rates in shared caches with formulas: equal tables, uniform ids, hot rows, and caches
  that hold all rows.
*/
#include "plan/cost/shared_cache.h"
#include "plan_units.h"

#include <math.h>

enum { TRS_PARTS = 1000 };

/*
  Make a histogram of reuse distances for the curve h(c / rows) = x^exponent. The last part has the
  rest.
*/
static void fill_curve(double exponent, double *hist)
{
  for (int k = 0; k < TRS_PARTS; k++)
    hist[k] = pow((k + 1.0) / TRS_PARTS, exponent) - pow((double)k / TRS_PARTS, exponent);
}

static void test_alone(void **state)
{
  double hist[TRS_PARTS], hit;

  (void)state;
  fill_curve(0.5, hist);
  for (int lfu = 0; lfu < 2; lfu++) {
    const TrsCacheUser user = {TRS_PARTS, hist, 64000, 500};

    assert_petsc_ok(TrsSharedCacheHits(1, &user, 16000, 0, (PetscBool)lfu, &hit));
    assert_close(hit, 0.5, 1e-9, 0);
    assert_petsc_ok(TrsSharedCacheHits(1, &user, 16000, 1e6, (PetscBool)lfu, &hit));
    assert_close(hit, 0.5, 1e-9, 0);
    assert_petsc_ok(TrsSharedCacheHits(1, &user, 64000, 0, (PetscBool)lfu, &hit));
    assert_close(hit, 1, 1e-9, 0);
  }
}

static void test_equal_tables(void **state)
{
  double hist[TRS_PARTS], hit[3];

  (void)state;
  fill_curve(0.4, hist);
  for (int lfu = 0; lfu < 2; lfu++) {
    const TrsCacheUser user = {TRS_PARTS, hist, 64000, 500}, users[3] = {user, user, user};

    assert_petsc_ok(TrsSharedCacheHits(3, users, 3 * 6400, 0, (PetscBool)lfu, hit));
    for (int u = 0; u < 3; u++) assert_close(hit[u], pow(0.1, 0.4), lfu ? 2e-3 : 1e-6, 0);
  }
}

/*
  Uniform ids: after t steps, the fraction 1 - exp(-U t / R) of a table's rows has been used. This
  fraction is the hit rate.
*/
static void test_uniform(void **state)
{
  const double rows[3] = {1000, 50000, 8000}, lookups[3] = {100, 300, 20};
  TrsCacheUser users[3];
  double hist[TRS_PARTS], hit[3];

  (void)state;
  fill_curve(1, hist);
  for (int u = 0; u < 3; u++) users[u] = (TrsCacheUser){TRS_PARTS, hist, rows[u], lookups[u]};
  for (double t = 3; t < 2000; t *= 3) {
    double lines = 0;

    for (int u = 0; u < 3; u++) lines += rows[u] * -expm1(-lookups[u] * t / rows[u]);
    assert_petsc_ok(TrsSharedCacheHits(3, users, lines, 0, PETSC_FALSE, hit));
    for (int u = 0; u < 3; u++) assert_close(hit[u], -expm1(-lookups[u] * t / rows[u]), 2e-3, 0);
  }
}

/*
  Uniform ids for S steps, starting with empty caches. If the characteristic time is t, a lookup at
  step s hits with probability 1 - exp(-r min(s, t)), where r = U / R. The tables' curves and the
  expected result both follow from this formula.
*/
static double mean_hit(double rate, double t, double steps)
{
  const double first = t + expm1(-rate * t) / rate; /* integral of the hit rate from 0 to t */

  return (first + (steps - t) * -expm1(-rate * t)) / steps;
}

static void test_few_steps(void **state)
{
  const double rows[2] = {2000, 30000}, lookups[2] = {80, 400}, steps = 100;
  TrsCacheUser users[2];
  double hist[2][TRS_PARTS], hit[2];

  (void)state;
  for (int u = 0; u < 2; u++) {
    const double rate = lookups[u] / rows[u];
    double before = 0, sum = 0;

    for (int k = 0; k < TRS_PARTS - 1; k++) {
      /* time until the lines are filled */
      const double t = PetscMin(-log1p(-(k + 1.0) / TRS_PARTS) / rate, steps);
      const double now = mean_hit(rate, t, steps);

      sum += hist[u][k] = now - before;
      before = now;
    }
    hist[u][TRS_PARTS - 1] = 1 - sum;
    users[u] = (TrsCacheUser){TRS_PARTS, hist[u], rows[u], lookups[u]};
  }
  for (double t = 5; t < 95; t += 15) {
    double lines = 0;

    for (int u = 0; u < 2; u++) lines += rows[u] * -expm1(-lookups[u] / rows[u] * t);
    assert_petsc_ok(TrsSharedCacheHits(2, users, lines, steps, PETSC_FALSE, hit));
    for (int u = 0; u < 2; u++) assert_close(hit[u], mean_hit(lookups[u] / rows[u], t, steps), 4e-3, 0);
  }
}

/*
  If all rows fit in the cache, only the first use of a row misses. The curve of the small table
  shows a lower rate, because of conflicts in its sets.
*/
static void test_everything_fits(void **state)
{
  double hist[TRS_PARTS], hit[2];

  (void)state;
  fill_curve(1, hist);
  for (int k = 0; k < TRS_PARTS; k++) hist[k] *= 0.8;
  hist[TRS_PARTS - 1] += 0.2;
  for (int lfu = 0; lfu < 2; lfu++) {
    const TrsCacheUser users[2] = {{TRS_PARTS, hist, 1000, 100}, {TRS_PARTS, hist, 3000, 100}};

    assert_petsc_ok(TrsSharedCacheHits(2, users, 4000, 100, (PetscBool)lfu, hit));
    assert_close(hit[0], 0.9, 1e-6, 0);
    /* 0.2 of the 10,000 uses are first uses of the 2,000 rows */
    assert_close(hit[1], 0.8, 1e-2, 0);
  }
}

/* LFU gives its lines to hot rows of any table, and not to rows that are rarely used. */
static void test_hot_rows(void **state)
{
  double hot[TRS_PARTS], uniform[TRS_PARTS], hit[2];

  (void)state;
  fill_curve(1, uniform);
  /* a tenth of the rows has 0.9 of the uses */
  for (int k = 0; k < TRS_PARTS; k++) hot[k] = k < 100 ? 0.009 : 0.1 / 900;
  {
    const TrsCacheUser users[2] = {{TRS_PARTS, hot, 10000, 100}, {TRS_PARTS, uniform, 10000, 100}};

    assert_petsc_ok(TrsSharedCacheHits(2, users, 500, 0, PETSC_TRUE, hit));
    assert_close(hit[0], 0.45, 1e-6, 0);
    assert_close(hit[1], 0, 1e-6, 0);
    assert_petsc_ok(TrsSharedCacheHits(2, users, 6000, 0, PETSC_TRUE, hit));
    assert_close(hit[0], 0.9, 1e-3, 0);
    assert_close(hit[1], 0.5, 1e-3, 0);
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_alone), cmocka_unit_test(test_equal_tables),
              cmocka_unit_test(test_uniform), cmocka_unit_test(test_few_steps),
              cmocka_unit_test(test_everything_fits), cmocka_unit_test(test_hot_rows))
