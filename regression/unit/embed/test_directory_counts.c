/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The numbers of a directory for reports: rows given and taken, the ages of ids that lose their
  rows, and the bytes of a row that the planner counts.
*/
#include "core/buffer.h"
#include "core/random/random.h"
#include "embed/dynamic.h"
#include "embed/zch.h"
#include "trs_test.h"

/* A training batch of a zch bucket. rows [n] is scratch. */
static void train_zch_rows(TrsZch bucket, int64_t n, const int64_t *ids, int64_t *rows)
{
  TrsGivenRows given;

  assert_petsc_ok(TrsZchBegin(bucket, n));
  (void)TrsZchFind(bucket, PETSC_TRUE, 0, n, ids, rows);
  assert_petsc_ok(TrsZchEnd(bucket, ids, rows));
  if (TrsZchIsDue(bucket)) assert_petsc_ok(TrsZchEvict(bucket, &given));
}

/* Like train_zch_rows(), for at most 8 ids. */
static void train_zch(TrsZch bucket, int64_t n, const int64_t *ids)
{
  int64_t rows[8];

  train_zch_rows(bucket, n, ids, rows);
}

/*
  By hand, with two rows for ids and an interval of 2. Ids 1 and 2 get rows, seen in batches 1 and
  2. In batch 3 comes id 2, and in batch 4 id 3: id 1, of age 3, loses its row. In batch 5 come both
  ids that have rows, and in batch 6 id 4: one of them loses its row, at an age of 1.
*/
static void test_zch_ages(void **state)
{
  const TrsZchRule rule = {.policy = TRS_ZCH_LRU, .interval = 2, .exponent = 1, .buckets = 1};
  TrsDirectoryCounts counts;
  TrsZch bucket;

  (void)state;
  assert_petsc_ok(TrsZchCreate(&rule, 3, &bucket));
  train_zch(bucket, 3, (const int64_t[]){1, 1, 1});
  train_zch(bucket, 1, (const int64_t[]){2});
  counts = TrsZchCount(bucket, PETSC_FALSE);
  assert_int_equal(counts.given, 2);
  assert_int_equal(counts.held, 2);
  assert_int_equal(counts.youngest, -1);
  train_zch(bucket, 3, (const int64_t[]){2, 2, 2});
  train_zch(bucket, 4, (const int64_t[]){3, 3, 3, 3});
  counts = TrsZchCount(bucket, PETSC_TRUE);
  assert_int_equal(counts.given, 3);
  assert_int_equal(counts.taken, 1);
  assert_int_equal(counts.held, 2);
  assert_int_equal(counts.young, 0);
  assert_int_equal(counts.youngest, 3);
  assert_int_equal(TrsZchCount(bucket, PETSC_FALSE).youngest, -1); /* anew */
  train_zch(bucket, 2, (const int64_t[]){2, 3});
  train_zch(bucket, 3, (const int64_t[]){4, 4, 4});
  counts = TrsZchCount(bucket, PETSC_FALSE);
  assert_int_equal(counts.taken, 2);
  assert_int_equal(counts.young, 1);
  assert_int_equal(counts.youngest, 1);
  assert_petsc_ok(TrsZchDestroy(&bucket));
}

/* lfu: an id of this interval that loses its row has an age, from the history. */
static void test_zch_lfu_ages(void **state)
{
  const TrsZchRule rule = {.policy = TRS_ZCH_LFU, .interval = 3, .exponent = 1, .buckets = 1};
  TrsDirectoryCounts counts;
  TrsZch bucket;

  (void)state;
  assert_petsc_ok(TrsZchCreate(&rule, 3, &bucket));
  train_zch(bucket, 8, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 2});
  train_zch(bucket, 0, NULL);
  train_zch(bucket, 0, NULL);
  /* In batch 4 comes id 2, and in batch 5 five times id 3: more than the two times of id 2. */
  train_zch(bucket, 1, (const int64_t[]){2});
  train_zch(bucket, 5, (const int64_t[]){3, 3, 3, 3, 3});
  train_zch(bucket, 0, NULL);
  counts = TrsZchCount(bucket, PETSC_TRUE);
  assert_int_equal(counts.taken, 1);
  assert_int_equal(counts.young, 1);
  assert_int_equal(counts.youngest, 2); /* batches 4 to 6 */
  /* In this interval id 3 does not come, and loses its row to id 4. */
  train_zch(bucket, 7, (const int64_t[]){4, 4, 4, 4, 4, 4, 4});
  train_zch(bucket, 0, NULL);
  train_zch(bucket, 0, NULL);
  counts = TrsZchCount(bucket, PETSC_FALSE);
  assert_int_equal(counts.taken, 2);
  assert_int_equal(counts.young, 1);
  assert_int_equal(counts.youngest, -1);
  assert_petsc_ok(TrsZchDestroy(&bucket));
}

/* A training batch of a dynamic bucket, of at most 8 ids. */
static void train_dynamic(TrsDynamic bucket, int64_t n, const int64_t *ids)
{
  int64_t rows[8], n_known;
  TrsGivenRows given;

  assert_petsc_ok(TrsDynamicBegin(bucket));
  (void)TrsDynamicFind(bucket, PETSC_TRUE, n, ids, rows);
  assert_petsc_ok(TrsDynamicAdmit(bucket, n, ids, rows, &n_known, &given));
}

/*
  By hand, with two rows for ids. Id 3 takes the row of id 1, of age 2; id 4 that of id 2, of age 1,
  which is young without a ttl. With a ttl of 3, both are young.
*/
static void test_dynamic_ages(void **state)
{
  (void)state;
  for (int64_t ttl = 0; ttl <= 3; ttl += 3) {
    const TrsDynamicRule rule = {.buckets = 1, .ttl = ttl, .admit_after = 1, .admit_probability = 1};
    TrsDirectoryCounts counts;
    TrsDynamic bucket;

    assert_petsc_ok(TrsDynamicCreate(&rule, 1, 3, &bucket));
    train_dynamic(bucket, 2, (const int64_t[]){1, 2});
    train_dynamic(bucket, 1, (const int64_t[]){2});
    train_dynamic(bucket, 2, (const int64_t[]){3, 3});
    counts = TrsDynamicCount(bucket, PETSC_TRUE);
    assert_int_equal(counts.taken, 1);
    assert_int_equal(counts.youngest, 2);
    assert_int_equal(counts.young, ttl ? 1 : 0);
    train_dynamic(bucket, 2, (const int64_t[]){3, 2});
    train_dynamic(bucket, 2, (const int64_t[]){3, 4});
    counts = TrsDynamicCount(bucket, PETSC_TRUE);
    assert_int_equal(counts.taken, 2);
    assert_int_equal(counts.youngest, 1);
    assert_int_equal(counts.young, ttl ? 2 : 1);
    assert_int_equal(counts.held, 2);
    assert_int_equal(TrsDynamicCount(bucket, PETSC_FALSE).youngest, -1);
    assert_petsc_ok(TrsDynamicDestroy(&bucket));
  }
}

/* Minimum, sums, and "unknown" of youngest. */
static void test_add(void **state)
{
  TrsDirectoryCounts sum = {.youngest = -1},
                     more = {.rows = 5, .held = 4, .given = 3, .taken = 2, .young = 1, .youngest = 7};

  (void)state;
  TrsDirectoryCountsAdd(&sum, &more);
  assert_int_equal(sum.youngest, 7);
  more.youngest = -1;
  TrsDirectoryCountsAdd(&sum, &more);
  assert_int_equal(sum.youngest, 7);
  more.youngest = 2;
  TrsDirectoryCountsAdd(&sum, &more);
  assert_int_equal(sum.youngest, 2);
  assert_int_equal(sum.young, 3);
  assert_int_equal(sum.taken, 6);
}

/*
  The planner's bytes of a row are those of a full bucket. The index grows in steps, so 3 bytes a
  row may be missing or left.
*/
static void test_row_bytes(void **state)
{
  enum { ROWS = 100000 };
  TrsTableConfig table = {.num_embeddings = ROWS};
  int64_t *ids, *rows;
  TrsDynamic dynamic;
  double used;

  (void)state;
  assert_int_equal(TrsTableKeysRowBytes(&table), 0);
  assert_petsc_ok(TrsAlloc(ROWS, sizeof(*ids), &ids));
  assert_petsc_ok(TrsAlloc(ROWS, sizeof(*rows), &rows));
  for (int64_t i = 0; i < ROWS; i++) ids[i] = 7 * i;
  table.id_map.kind = TRS_ID_MAP_ZCH;
  table.zch = (TrsZchRule){.interval = 1, .exponent = 1, .buckets = 1};
  for (int policy = 0; policy < 3; policy++) {
    TrsZch zch;

    table.zch.policy = (TrsZchPolicy)policy;
    assert_petsc_ok(TrsZchCreate(&table.zch, ROWS, &zch));
    train_zch_rows(zch, ROWS - 1, ids, rows);
    train_zch_rows(zch, ROWS - 1, ids, rows);
    assert_int_equal(TrsZchCount(zch, PETSC_FALSE).held, ROWS - 1);
    used = (double)TrsZchCount(zch, PETSC_FALSE).bytes / ROWS;
    assert_close(used, TrsTableKeysRowBytes(&table), 3.0, 0.0);
    assert_petsc_ok(TrsZchDestroy(&zch));
  }
  assert_petsc_ok(TrsFree(&ids));
  assert_petsc_ok(TrsFree(&rows));
  table.id_map.kind = TRS_ID_MAP_DYNAMIC;
  table.dynamic = (TrsDynamicRule){.buckets = 1, .admit_after = 1, .admit_probability = 1};
  assert_petsc_ok(TrsDynamicCreate(&table.dynamic, 1, ROWS, &dynamic));
  for (int64_t id = 0; id < ROWS - 8; id += 8)
    train_dynamic(dynamic, 8, (const int64_t[]){id, id + 1, id + 2, id + 3, id + 4, id + 5, id + 6, id + 7});
  used = (double)TrsDynamicCount(dynamic, PETSC_FALSE).bytes / ROWS;
  assert_int_equal(TrsDynamicCount(dynamic, PETSC_FALSE).held, ROWS - 8);
  assert_close(used, TrsTableKeysRowBytes(&table), 3.0, 0.0);
  assert_petsc_ok(TrsDynamicDestroy(&dynamic));
}

TRS_TEST_MAIN(cmocka_unit_test(test_zch_ages), cmocka_unit_test(test_zch_lfu_ages),
              cmocka_unit_test(test_dynamic_ages), cmocka_unit_test(test_add),
              cmocka_unit_test(test_row_bytes))
