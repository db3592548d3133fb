/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of layers: none has a hole, and a hole is found at set-up. */
#include "model/mlp.h"
#include "trs_test.h"

static const TrsLayerOps *const kinds[] = {&trs_layer_linear};

static void test_tables(void **state)
{
  (void)state;
  for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
    assert_petsc_ok(TrsLayerCheck(kinds[kind]));
    PetscCallAbort(PETSC_COMM_SELF, PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
    for (int slot = 0; slot < 4; slot++) {
      TrsLayerOps hole = *kinds[kind];

      if (slot == 0) hole.flops = NULL;
      if (slot == 1) hole.bytes = NULL;
      if (slot == 2) hole.forward = NULL;
      if (slot == 3) hole.backward = NULL;
      assert_int_equal(TrsLayerCheck(&hole), TRS_ERR_INTERNAL);
    }
    PetscCallAbort(PETSC_COMM_SELF, PetscPopErrorHandler());
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_tables))
