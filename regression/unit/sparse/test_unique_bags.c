/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares the data that is sent for a batch with results by hand. The distinct bags of two features
  are packed and padded, and one feature is used twice. On every device, strides and id_begin are
  valid after a wait for the stream.
*/
#include "sparse/unique_bags.h"
#include "trs_test.h"

#include <string.h>

enum { F = 3, B = 4, N = 11 };

static const TrsDeviceOps *device;
static const TrsComputeOps *compute;
static TrsWorkspace workspace;
static TrsStream stream;

/*
  Feature 0: {7}, {}, {7}, {8, 9}. Feature 1, which no call uses: {1}, {1}, {1}, {1}. Feature 2: {},
  {5}, {6}, {5}.
*/
static const int32_t lengths[F * B] = {1, 0, 1, 2, 1, 1, 1, 1, 0, 1, 1, 1};
static const int64_t values[N] = {7, 7, 8, 9, 1, 1, 1, 1, 5, 6, 5};

static void put(void *to, const void *from, int64_t bytes)
{
  assert_petsc_ok(device->copy(to, from, bytes, stream));
  assert_petsc_ok(device->stream_synchronize(stream));
}

static void make_batch(TrsKjt *batch)
{
  assert_petsc_ok(TrsKjtReserve(device, batch, F, B, N, PETSC_FALSE));
  put(batch->jagged.lengths, lengths, sizeof(lengths));
  put(batch->jagged.values, values, sizeof(values));
  assert_petsc_ok(TrsKjtOffsets(compute, stream, batch));
}

static void assert_array(const void *found, const void *wanted, int64_t bytes)
{
  char host[256];

  assert_true(bytes <= (int64_t)sizeof(host));
  put(host, found, bytes);
  assert_memory_equal(host, wanted, (size_t)bytes);
}

static void check_batch(void)
{
  const int feature[2] = {2, 0}, block[3] = {2, 0, 2}, list[3] = {0, 1, 0};
  const int64_t inverse[2 * B] = {0, 1, 2, 1, 0, 1, 0, 2}, strides[3] = {3, 3, 3}, id_begin[4] = {0, 2, 5, 7};
  const int32_t taken[9] = {0, 1, 1, 1, 0, 2, 0, 1, 1}, padded[2 * B] = {0, 1, 1, 0, 1, 0, 2, 0};
  const int64_t ids[7] = {5, 6, 7, 8, 9, 5, 6}, offsets[2 * B + 1] = {0, 0, 1, 2, 2, 3, 3, 5, 5};
  const int32_t first_of_block[3] = {0, 1, 1};
  TrsKjt batch = {0}, out = {0};
  TrsUniqueBags bags = {.lists = {0}};
  TrsDeviceBuffer places = {0};
  TrsPinnedBuffer limits = {0};
  TrsBagLists blocks_first;

  make_batch(&batch);
  assert_petsc_ok(TrsUniqueBagsFind(device, compute, stream, workspace, &batch, 2, feature, &bags, &places));
  assert_array(places.data, inverse, sizeof(inverse));
  assert_petsc_ok(TrsUniqueBagsTake(device, compute, stream, workspace, &bags,
                                    &(TrsTakenBags){&bags.lists, &batch, 3, block, list, N}, &limits, &out));
  assert_int_equal(out.limits_pending, !device->host_memory);
  assert_petsc_ok(device->stream_synchronize(stream));
  assert_int_equal(out.batch, TRS_KJT_VARIABLE);
  assert_memory_equal(out.strides, strides, sizeof(strides));
  assert_memory_equal(out.id_begin, id_begin, sizeof(id_begin));
  assert_array(out.jagged.lengths, taken, sizeof(taken));
  assert_array(out.jagged.values, ids, sizeof(ids));
  assert_petsc_ok(TrsUniqueBagsTake(device, compute, stream, workspace, &bags,
                                    &(TrsTakenBags){&bags.lists, &batch, 2, block, list, N}, NULL, &out));
  assert_int_equal(out.batch, B);
  assert_false(out.limits_pending);
  assert_null(out.strides);
  assert_array(out.jagged.lengths, padded, sizeof(padded));
  assert_array(out.jagged.offsets, offsets, sizeof(offsets));
  blocks_first = bags.lists;
  blocks_first.sample = NULL;
  assert_petsc_ok(TrsUniqueBagsTake(device, compute, stream, workspace, &bags,
                                    &(TrsTakenBags){&blocks_first, &batch, 1, block, list, N}, &limits,
                                    &out));
  assert_petsc_ok(device->stream_synchronize(stream));
  assert_int_equal(out.strides[0], 3);
  assert_int_equal(out.id_begin[1], 2);
  assert_array(out.jagged.lengths, first_of_block, sizeof(first_of_block));
  assert_petsc_ok(TrsUniqueBagsFree(device, &bags));
  assert_petsc_ok(TrsDeviceBufferFree(device, &places));
  assert_petsc_ok(TrsPinnedBufferFree(device, &limits));
  assert_petsc_ok(TrsKjtFree(device, &batch));
  assert_petsc_ok(TrsKjtFree(device, &out));
}

static void test_unique_bags(void **state)
{
  int n_devices = 0;
  char why_not[256];

  (void)state;
  for (int i = 0; trs_compute_backends[i]; i++) {
    compute = trs_compute_backends[i];
    assert_petsc_ok(TrsDeviceFind(compute->name, &device));
    assert_petsc_ok(device->available(&n_devices, why_not, sizeof(why_not)));
    if (n_devices == 0) continue;
    assert_petsc_ok(device->setup(0, 1));
    assert_petsc_ok(device->stream_create("input", &stream));
    assert_petsc_ok(compute->workspace_create(&workspace));
    check_batch();
    assert_petsc_ok(compute->workspace_destroy(&workspace));
    assert_petsc_ok(device->stream_destroy(&stream));
  }
}

TRS_TEST_MAIN(cmocka_unit_test(test_unique_bags))
