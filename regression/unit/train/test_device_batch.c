/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Tests a batch that does not fit on the device. If any of its allocations fails, the memory that
  exists is freed once. A program then ends, but a caller of the library may continue.
*/
#include "train/device_batch.h"
#include "trs_test.h"

enum { MOST_BLOCKS = 64, BAGS = 4096 };

static const TrsDeviceOps *cpu;
static void *block[MOST_BLOCKS]; /* the blocks that are allocated now */
static int n_left;               /* number of allocations that will succeed */

static PetscErrorCode alloc_few(int64_t bytes, void **pointer)
{
  int i = 0;

  PetscFunctionBegin;
  PetscCheck(n_left-- > 0, PETSC_COMM_SELF, TRS_ERR_MEMORY, "no memory for %d bytes", (int)bytes);
  while (block[i]) i++;
  assert_true(i < MOST_BLOCKS);
  PetscCall(cpu->alloc(bytes, &block[i]));
  *pointer = block[i];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_held(void **pointer)
{
  int i = 0;

  PetscFunctionBegin;
  if (!*pointer) PetscFunctionReturn(PETSC_SUCCESS);
  while (i < MOST_BLOCKS && block[i] != *pointer) i++;
  assert_true(i < MOST_BLOCKS); /* if this fails, the block was already released */
  block[i] = NULL;
  PetscCall(cpu->release(pointer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void test_memory_ends(void **state)
{
  static int32_t lengths[BAGS];
  static int64_t offsets[BAGS + 1], values[1];
  TrsBatch host = {.batch = 1, .kjt = {.n_features = 1, .batch = 1}};
  const TrsComputeOps *compute;
  TrsDeviceOps device;

  (void)state;
  assert_petsc_ok(TrsDeviceFind("cpu", &cpu));
  assert_petsc_ok(TrsComputeFind("cpu", &compute));
  device = *cpu;
  device.host_memory = PETSC_FALSE;
  device.alloc = alloc_few;
  device.alloc_shared = NULL;
  device.release = release_held;
  for (int more = 0; more < 3; more++) {
    TrsDeviceBatch batch;
    PetscErrorCode ierr;

    assert_petsc_ok(TrsDeviceBatchCreate(&device, &batch));
    host.batch = host.kjt.batch = 1;
    host.kjt.jagged = (TrsJagged){.n_bags = 1, .lengths = lengths, .offsets = offsets, .values = values};
    n_left = MOST_BLOCKS;
    assert_petsc_ok(TrsDeviceBatchCopy(&device, compute, NULL, NULL, &host, &batch));
    host.batch = host.kjt.batch = host.kjt.jagged.n_bags = BAGS;
    n_left = more;
    ierr = TrsDeviceBatchCopy(&device, compute, NULL, NULL, &host, &batch);
    /* there are two allocations, because lengths and offsets must grow */
    assert_int_equal(ierr, more < 2 ? TRS_ERR_MEMORY : PETSC_SUCCESS);
    TrsErrorClear();
    assert_petsc_ok(TrsDeviceBatchDestroy(&device, &batch));
    for (int i = 0; i < MOST_BLOCKS; i++) assert_null(block[i]);
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_memory_ends))
