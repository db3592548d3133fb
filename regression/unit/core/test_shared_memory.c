/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests that blocks of shared memory are allocated, freed and joined, and are visible in another
  mapping.
*/
#include "core/buffer.h"
#include "core/shared_memory.h"
#include "trs_test.h"

#include <string.h>

enum { PAGE = 4096, PAGES = 16 };

static TrsSharedKey key;

/*
  Before shared memory is open, blocks are ordinary memory. If shared memory is not allowed, it is
  never opened.
*/
static void test_closed(void **state)
{
  char why_not[256] = "";
  void *block = NULL;

  (void)state;
  assert_petsc_ok(TrsSharedAlloc(100, &block));
  assert_true(TrsSharedOffset(block, 100) == -1);
  assert_false(TrsSharedRelease(&block));
  assert_petsc_ok(TrsFree(&block));
  TrsSharedAllow(PETSC_FALSE);
  assert_petsc_ok(TrsSharedOpen(PAGES * PAGE, &key, why_not, sizeof(why_not)));
  assert_true(key.bytes == 0);
  TrsSharedAllow(PETSC_TRUE);
  assert_petsc_ok(TrsSharedOpen(PAGES * PAGE, &key, why_not, sizeof(why_not)));
  assert_string_equal(why_not, "");
  assert_true(key.bytes == (PAGES + 1) * PAGE); /* one more page identifies the owner */
}

/*
  The memory is divided into blocks until it is full. After all blocks are freed in any order, it is
  one free piece that is filled with zeros.
*/
static void test_blocks(void **state)
{
  static const int orders[3][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}};
  int64_t held, held_now, begin;
  void *block[4], *all = NULL, *more = NULL;

  (void)state;
  TrsMemoryUse(NULL, &held);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 4; i++) {
      assert_petsc_ok(TrsSharedAlloc(4 * PAGE - i, &block[i]));
      begin = TrsSharedOffset(block[i], 4 * PAGE - i);
      assert_true(begin == (4 * i + 1) * PAGE);
      for (int k = 0; k < 4 * PAGE - i; k++)
        if (((char *)block[i])[k] != 0) fail_msg("byte %d of block %d is not zero", k, i);
      memset(block[i], 0xAB, (size_t)(4 * PAGE - i));
    }
    TrsMemoryUse(NULL, &held_now);
    assert_true(held_now == held + PAGES * PAGE);
    /* shared memory is full, so this is an ordinary block */
    assert_petsc_ok(TrsSharedAlloc(1, &more));
    assert_true(TrsSharedOffset(more, 1) == -1);
    assert_petsc_ok(TrsFree(&more));
    for (int i = 0; i < 4; i++) {
      assert_true(TrsSharedRelease(&block[orders[round][i]]));
      assert_null(block[orders[round][i]]);
    }
    assert_petsc_ok(TrsSharedAlloc(PAGES * PAGE, &all));
    assert_true(TrsSharedOffset(all, PAGES * PAGE) == PAGE);
    assert_true(TrsSharedOffset(all, PAGES * PAGE + 1) == -1);
    assert_true(TrsSharedRelease(&all));
  }
  TrsMemoryUse(NULL, &held_now);
  assert_true(held_now == held);
  assert_petsc_ok(TrsSharedAlloc(0, &more));
  if (!TrsSharedRelease(&more)) assert_petsc_ok(TrsFree(&more));
}

/*
  A second mapping, as other ranks have it, shows later writes. A key with any wrong part is
  refused.
*/
static void test_attach(void **state)
{
  char why_not[256] = "";
  const char *base = NULL, *again = NULL;
  TrsSharedKey wrong;
  char *block = NULL;

  (void)state;
  assert_petsc_ok(TrsSharedAttach(&key, &base, why_not, sizeof(why_not)));
  assert_non_null(base);
  assert_petsc_ok(TrsSharedAlloc(PAGE, (void **)&block));
  strcpy(block, "written later");
  assert_string_equal(base + TrsSharedOffset(block, PAGE), "written later");
  assert_petsc_ok(TrsSharedAttach(&key, &again, why_not, sizeof(why_not)));
  assert_ptr_equal(again, base);
  assert_true(TrsSharedPeersResident() >=
              PAGE); /* only the page just read; the system may also map adjacent pages */
  assert_petsc_ok(TrsSharedDetach(again));
  /* one attachment still exists */
  assert_string_equal(base + TrsSharedOffset(block, PAGE), "written later");
  assert_petsc_ok(TrsSharedDetach(base));
  assert_true(TrsSharedPeersResident() == 0);
  for (int part = 0; part < 4; part++) {
    wrong = key;
    wrong.nonce++; /* the changed key must be searched for */
    wrong.pid += part == 1 ? 1 << 20 : 0;
    wrong.fd = part == 2 ? 1 : wrong.fd; /* descriptor 1 is stdout */
    wrong.bytes += part == 3 ? PAGE : 0;
    why_not[0] = '\0';
    assert_petsc_ok(TrsSharedAttach(&wrong, &again, why_not, sizeof(why_not)));
    assert_null(again);
    assert_non_null(strstr(why_not, "cannot be mapped"));
  }
  assert_true(TrsSharedRelease((void **)&block));
}

TRS_TEST_MAIN(cmocka_unit_test(test_closed), cmocka_unit_test(test_blocks), cmocka_unit_test(test_attach))
