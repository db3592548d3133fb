/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The function tables of devices and exchanges have no empty entry, and set-up finds each empty
  entry.
*/
#include "comm/comm.h"
#include "device/device.h"
#include "trs_test.h"

#include <stdlib.h>
#include <string.h>

/* Tables are copied pointer by pointer, so that each pointer can be removed. */
static int holes_found(const void *table, size_t bytes, PetscErrorCode (*check)(const void *table))
{
  int found = 0;
  char *copy = malloc(bytes);

  assert_non_null(copy);
  for (size_t at = 0; at + sizeof(void *) <= bytes; at += sizeof(void *)) {
    memcpy(copy, table, bytes);
    memset(copy + at, 0, sizeof(void *));
    found += check(copy) == TRS_ERR_INTERNAL;
  }
  free(copy);
  return found;
}

static PetscErrorCode check_device(const void *table)
{
  return TrsDeviceCheck((const TrsDeviceOps *)table);
}

static PetscErrorCode check_comm(const void *table)
{
  return TrsCommCheck((const TrsCommOps *)table);
}

static void test_devices(void **state)
{
  (void)state;
  for (int i = 0; trs_device_backends[i]; i++) {
    const TrsDeviceOps *ops = trs_device_backends[i];
    /*
      The four time functions are optional together, and so are the five graph functions. If only
      one function of such a group is missing, the entry also counts as empty.
    */
    const int optional = (ops->timed_event_create ? 4 : 0) + (ops->capture_start ? 5 : 0);

    assert_petsc_ok(TrsDeviceCheck(ops));
    PetscCallAbort(PETSC_COMM_SELF, PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
    assert_int_equal(holes_found(ops, sizeof(*ops), check_device), 18 + optional);
    PetscCallAbort(PETSC_COMM_SELF, PetscPopErrorHandler());
  }
}

static void test_exchanges(void **state)
{
  (void)state;
  for (int i = 0; trs_comm_backends[i]; i++) {
    const TrsCommOps *ops = trs_comm_backends[i];
    const int optional = ops->arrive ? 3 : 0;

    assert_petsc_ok(TrsCommCheck(ops));
    PetscCallAbort(PETSC_COMM_SELF, PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
    assert_int_equal(holes_found(ops, sizeof(*ops), check_comm), 9 + optional);
    PetscCallAbort(PETSC_COMM_SELF, PetscPopErrorHandler());
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_devices), cmocka_unit_test(test_exchanges))
