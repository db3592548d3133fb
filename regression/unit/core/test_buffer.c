/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/buffer.h"
#include "trs_test.h"

#include <string.h>

static int64_t allocations(void)
{
  int64_t n;

  TrsMemoryUse(&n, NULL);
  return n;
}

static int64_t held(void)
{
  int64_t bytes;

  TrsMemoryUse(NULL, &bytes);
  return bytes;
}

static void test_alloc(void **state)
{
  static const int64_t sizes[] = {
      0, 1, 63, 64, 65, 4095, 1 << 20, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 20 << 20};
  int64_t before = held();

  (void)state;
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    unsigned char *bytes = NULL;

    assert_petsc_ok(TrsAlloc(sizes[i], 1, &bytes));
    assert_non_null(bytes);
    assert_int_equal((uintptr_t)bytes % 64, 0);
    /* large blocks use huge pages */
    if (sizes[i] >= 4 << 20) assert_int_equal((uintptr_t)bytes % (2 << 20), 0);
    for (int64_t k = 0; k < sizes[i]; k += 61) assert_int_equal(bytes[k], 0);
    memset(bytes, 0xAB, (size_t)sizes[i]); /* all bytes up to the last can be written */
    assert_true(held() == before + sizes[i]);
    assert_petsc_ok(TrsFree(&bytes));
    assert_null(bytes);
    assert_petsc_ok(TrsFree(&bytes)); /* freeing NULL does nothing */
  }
  assert_true(held() == before);
}

static void test_alloc_fails(void **state)
{
  double *numbers = NULL;

  (void)state;
  assert_petsc_error(TrsAlloc(INT64_MAX / 4, sizeof(*numbers), &numbers),
                     TRS_ERR_MEMORY); /* the product overflows */
  assert_petsc_error(TrsAlloc(-1, 1, &numbers), TRS_ERR_MEMORY);
  assert_petsc_error(TrsAlloc((int64_t)1 << 46, sizeof(*numbers), &numbers),
                     TRS_ERR_MEMORY); /* 512 TiB is larger than the address space */
  assert_non_null(strstr(TrsErrorMessage(), "562949953421312 bytes"));
  assert_null(numbers);
  TrsErrorClear();
}

static void test_buffer(void **state)
{
  TrsBuffer buffer = {NULL, 0};
  int64_t n = allocations(), before = held();

  (void)state;
  assert_petsc_ok(TrsBufferReserve(&buffer, 0, PETSC_TRUE));
  assert_null(buffer.data);
  assert_petsc_ok(TrsBufferReserve(&buffer, 1000, PETSC_FALSE));
  assert_int_equal(buffer.capacity_bytes, 1000);
  memset(buffer.data, 7, 1000);
  /* the buffer grows at least by half of its size */
  assert_petsc_ok(TrsBufferReserve(&buffer, 1001, PETSC_TRUE));
  assert_int_equal(buffer.capacity_bytes, 1500);
  for (int i = 0; i < 1000; i++) assert_int_equal(((unsigned char *)buffer.data)[i], 7);
  /* the buffer moves from the heap to a mapping */
  assert_petsc_ok(TrsBufferReserve(&buffer, 5 << 20, PETSC_TRUE));
  for (int i = 0; i < 1000; i++) assert_int_equal(((unsigned char *)buffer.data)[i], 7);
  assert_true(allocations() == n + 3);
  /* a buffer never shrinks, so it need not be allocated again */
  assert_petsc_ok(TrsBufferReserve(&buffer, 100, PETSC_FALSE));
  assert_int_equal(buffer.capacity_bytes, 5 << 20);
  assert_true(allocations() == n + 3 && held() == before + (5 << 20));
  assert_petsc_error(TrsBufferReserve(&buffer, -1, PETSC_FALSE), TRS_ERR_INTERNAL);
  TrsErrorClear();
  assert_petsc_ok(TrsBufferFree(&buffer));
  assert_null(buffer.data);
  assert_true(held() == before);
  assert_petsc_ok(TrsBufferFree(&buffer));
}

/*
  A block counts for the purpose for which it was allocated, even if another purpose is set when it
  is freed.
*/
static void test_kinds(void **state)
{
  static const int64_t sizes[] = {100, 5 << 20}; /* sizes of a block on the heap and of a mapping */
  int64_t before[TRS_N_MEMORY_KINDS], now[TRS_N_MEMORY_KINDS];
  char *states = NULL;

  (void)state;
  TrsMemoryHeld(before);
  assert_int_equal(TrsMemoryIsFor(), TRS_MEMORY_SCRATCH);
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    TrsBuffer batch = {NULL, 0};

    assert_int_equal(TrsMemoryFor(TRS_MEMORY_BATCHES), TRS_MEMORY_SCRATCH);
    assert_petsc_ok(TrsBufferReserve(&batch, sizes[i], PETSC_FALSE));
    assert_int_equal(TrsMemoryFor(TRS_MEMORY_STATES), TRS_MEMORY_BATCHES);
    assert_petsc_ok(TrsAlloc(sizes[i], 1, &states));
    assert_int_equal(TrsMemoryFor(TRS_MEMORY_SCRATCH), TRS_MEMORY_STATES);
    TrsMemoryHeld(now);
    for (int k = 0; k < TRS_N_MEMORY_KINDS; k++)
      assert_int_equal(now[k] - before[k], k == TRS_MEMORY_BATCHES || k == TRS_MEMORY_STATES ? sizes[i] : 0);
    assert_petsc_ok(TrsBufferFree(&batch));
    assert_petsc_ok(TrsFree(&states));
    TrsMemoryHeld(now);
    assert_memory_equal(now, before, sizeof(now));
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_alloc), cmocka_unit_test(test_alloc_fails), cmocka_unit_test(test_buffer),
              cmocka_unit_test(test_kinds))
