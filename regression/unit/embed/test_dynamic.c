/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A bucket of a table that grows: rows, evictions, ages and candidates one call at a time, and its
  state after it is written and read. regression/case/law_dynamic.py compares whole runs with a
  reference.
*/
#include "core/random/random.h"
#include "embed/dynamic.h"
#include "trs_test.h"

#include <string.h>

enum { MOST = 4000 };

static TrsDynamicRule rule(TrsDynamicPolicy policy, int64_t ttl, int64_t admit_after)
{
  return (TrsDynamicRule){.policy = policy,
                          .buckets = 1,
                          .ttl = ttl,
                          .admit_after = admit_after,
                          .admit_probability = 1,
                          .candidates = 100};
}

/* Train a batch. Returns the number of rows that were given. */
static int64_t train(TrsDynamic b, int64_t n, const int64_t *ids, int64_t *rows)
{
  TrsGivenRows given = {.n = 0};
  int64_t n_known, n_found = 0;

  assert_petsc_ok(TrsDynamicBegin(b));
  n_known = TrsDynamicFind(b, PETSC_TRUE, n, ids, rows);
  assert_petsc_ok(TrsDynamicAdmit(b, n, ids, rows, &n_known, &given));
  for (int64_t i = 0; i < n; i++) n_found += rows[i] > 0;
  assert_int_equal(n_known, n_found);
  return given.n;
}

static int64_t find(TrsDynamic b, int64_t id)
{
  int64_t row;

  (void)TrsDynamicFind(b, PETSC_FALSE, 1, &id, &row);
  return row;
}

/* New ids get rows in their order, from row 1 on; an id has one row. */
static void test_order(void **state)
{
  const int64_t ids[] = {7, -1, 7, INT64_MIN, INT64_MAX, -1};
  const TrsDynamicRule lru = rule(TRS_DYNAMIC_LRU, 0, 1);
  int64_t rows[6];
  TrsDynamic b;

  (void)state;
  assert_petsc_ok(TrsDynamicCreate(&lru, 1, 10, &b));
  assert_int_equal(find(b, 7), 0);
  assert_int_equal(train(b, 6, ids, rows), 4);
  assert_memory_equal(rows, ((int64_t[]){1, 2, 1, 3, 4, 2}), sizeof(rows));
  assert_int_equal(train(b, 6, ids, rows), 0);
  assert_int_equal(find(b, 8), 0);
  assert_int_equal(TrsDynamicCount(b, PETSC_FALSE).held, 4);
  assert_petsc_ok(TrsDynamicDestroy(&b));
}

/* In a full bucket of 3 ids, a new id takes the row of the id that the policy keeps least. */
static void test_policies(void **state)
{
  static const int64_t batches[][3] = {{1, 2, 3}, {1, 1, 2}, {3, 3, 3}};
  static const struct {
    TrsDynamicPolicy policy;
    int64_t ttl, lost;
  } cases[] = {{TRS_DYNAMIC_LRU, 0, 1}, {TRS_DYNAMIC_LFU, 0, 2}, {TRS_DYNAMIC_TTL, 9, 0}};

  (void)state;
  for (int c = 0; c < 3; c++) {
    const TrsDynamicRule r = rule(cases[c].policy, cases[c].ttl, 1);
    int64_t rows[3], id = 4, row;
    TrsDynamic b;

    assert_petsc_ok(TrsDynamicCreate(&r, 1, 4, &b));
    for (int s = 0; s < 3; s++) (void)train(b, 3, batches[s], rows);
    (void)train(b, 1, &id, &row);
    assert_int_equal(row, cases[c].lost);
    assert_int_equal(TrsDynamicCount(b, PETSC_FALSE).refused, cases[c].lost == 0);
    for (int64_t k = 1; k <= 3; k++) assert_int_equal(find(b, k), k == cases[c].lost ? 0 : k);
    assert_petsc_ok(TrsDynamicDestroy(&b));
  }
}

/* Ids that the batch has had keep their rows; if all rows are theirs, further ids share row 0. */
static void test_full(void **state)
{
  const TrsDynamicRule lru = rule(TRS_DYNAMIC_LRU, 0, 1);
  int64_t ids[20], rows[20];
  TrsDynamic b;

  (void)state;
  for (int64_t i = 0; i < 20; i++) ids[i] = 100 + i;
  assert_petsc_ok(TrsDynamicCreate(&lru, 1, 8, &b));
  for (int s = 0; s < 3; s++) {
    (void)train(b, 20, ids, rows);
    for (int64_t i = 0; i < 20; i++) assert_int_equal(rows[i], i < 7 ? i + 1 : 0);
  }
  assert_int_equal(TrsDynamicCount(b, PETSC_FALSE).refused, 3 * 13);
  assert_petsc_ok(TrsDynamicDestroy(&b));
}

/* An id older than ttl is unknown at once, also to evaluations, and its row is used again. */
static void test_age(void **state)
{
  const TrsDynamicRule r = rule(TRS_DYNAMIC_TTL, 3, 1);
  int64_t id = 5, other = 6, row;
  TrsDynamic b;

  (void)state;
  assert_petsc_ok(TrsDynamicCreate(&r, 1, 3, &b));
  (void)train(b, 1, &id, &row);
  for (int s = 0; s < 3; s++) (void)train(b, 1, &other, &row);
  assert_int_equal(find(b, id), 1);
  (void)train(b, 1, &other, &row);
  assert_int_equal(find(b, id), 0);
  assert_int_equal(train(b, 1, &id, &row), 1);
  assert_int_equal(row, 1);
  assert_int_equal(TrsDynamicCount(b, PETSC_FALSE).taken, 1);
  assert_petsc_ok(TrsDynamicDestroy(&b));
}

/* An id gets its row with its third occurrence, in all of that batch; a sketch counts when the list
   of candidates is full. */
static void test_admission(void **state)
{
  TrsDynamicRule r = rule(TRS_DYNAMIC_LRU, 0, 3);
  const int64_t twice[] = {9, 9}, later[] = {9, 8, 9};
  int64_t rows[3];

  (void)state;
  for (int exact = 0; exact < 2; exact++) {
    TrsDynamic b;

    r.candidates = exact ? 100 : 0;
    assert_petsc_ok(TrsDynamicCreate(&r, 1, 50, &b));
    assert_int_equal(train(b, 2, twice, rows), 0);
    assert_memory_equal(rows, ((int64_t[]){0, 0}), 2 * sizeof(int64_t));
    assert_int_equal(TrsDynamicCountCandidates(b), exact);
    assert_true((TrsDynamicCountCells(b) > 0) == !exact);
    assert_int_equal(train(b, 3, later, rows), 1);
    assert_memory_equal(rows, ((int64_t[]){1, 0, 1}), sizeof(rows));
    assert_petsc_ok(TrsDynamicDestroy(&b));
  }
}

/* Long random streams against rows that are kept in a plain array; the index grows and shrinks. */
static void test_stream(void **state)
{
  const TrsDynamicRule r = rule(TRS_DYNAMIC_LRU, 12, 1);
  static int64_t ids[300], rows[300], id_of_row[MOST];
  TrsDirectoryCounts counts;
  TrsDynamic b;

  (void)state;
  memset(id_of_row, 0, sizeof(id_of_row));
  assert_petsc_ok(TrsDynamicCreate(&r, 1, MOST, &b));
  for (int s = 0; s < 200; s++) {
    for (int i = 0; i < 300; i++) {
      uint32_t words[4];

      TrsRandom(1, TRS_RANDOM_TEST, (uint64_t)s, (uint64_t)i, words);
      /* Ids whose low 40 bits are 0, and ids that differ in few bits. */
      ids[i] = (int64_t)((uint64_t)(words[0] % 500 + (unsigned)s * 10) << (words[1] % 2 ? 40 : 0));
    }
    (void)train(b, 300, ids, rows);
    for (int i = 0; i < 300; i++) {
      assert_in_range(rows[i], 1, MOST - 1);
      for (int k = 0; k < i; k++) assert_true((ids[k] == ids[i]) == (rows[k] == rows[i]));
      id_of_row[rows[i]] = ids[i];
    }
    for (int i = 0; i < 300; i++) assert_true(id_of_row[rows[i]] == ids[i]);
  }
  counts = TrsDynamicCount(b, PETSC_FALSE);
  assert_true(counts.taken > 1000);
  assert_int_equal(counts.given - counts.taken, counts.held);
  assert_petsc_ok(TrsDynamicDestroy(&b));
}

/* Write a bucket's state and give it to another bucket, which goes on in the same way. */
static void test_state(void **state)
{
  TrsDynamicRule r = rule(TRS_DYNAMIC_LFU, 9, 2);
  static TrsDynamicRow row[MOST], candidate[MOST], kept[MOST];
  static TrsDynamicCell cell[MOST];
  static int64_t ids[60], rows[2][60], place[MOST];
  TrsDynamicState from = {.row = kept, .place = place, .candidate = candidate, .cell = cell};
  TrsDynamic b[2];
  TrsDirectoryFault fault;

  (void)state;
  r.candidates = 10;
  for (int k = 0; k < 2; k++) assert_petsc_ok(TrsDynamicCreate(&r, 1, 40, &b[k]));
  for (int s = 0; s < 40; s++) {
    for (int i = 0; i < 60; i++) {
      uint32_t words[4];

      TrsRandom(2, TRS_RANDOM_TEST, (uint64_t)s, (uint64_t)i, words);
      ids[i] = (int64_t)(words[0] % 90) + s;
    }
    (void)train(b[0], 60, ids, rows[0]);
    if (s >= 20) {
      (void)train(b[1], 60, ids, rows[1]);
      assert_memory_equal(rows[0], rows[1], sizeof(rows[0]));
    }
    if (s != 19) continue;
    TrsDynamicNumbers(b[0], from.number);
    TrsDynamicRows(b[0], 0, from.number[TRS_DYNAMIC_USED], row);
    for (int64_t k = 0; k < from.number[TRS_DYNAMIC_USED]; k++) {
      if (!row[k].last) continue;
      kept[from.n_rows] = row[k];
      place[from.n_rows++] = k;
    }
    from.n_candidates = TrsDynamicCountCandidates(b[0]);
    from.n_cells = TrsDynamicCountCells(b[0]);
    assert_true(from.n_rows > 0 && from.n_candidates > 0 && from.n_cells > 0);
    assert_petsc_ok(TrsDynamicCandidates(b[0], candidate));
    TrsDynamicCells(b[0], 0, cell);
    assert_petsc_ok(TrsDynamicSet(b[1], &from, &fault));
    assert_null(fault.what);
  }
  for (int k = 0; k < 2; k++) assert_petsc_ok(TrsDynamicDestroy(&b[k]));
}

TRS_TEST_MAIN(cmocka_unit_test(test_order), cmocka_unit_test(test_policies), cmocka_unit_test(test_full),
              cmocka_unit_test(test_age), cmocka_unit_test(test_admission), cmocka_unit_test(test_stream),
              cmocka_unit_test(test_state))
