/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Tests graphs of a device. A captured operation does not run during the capture. Each launch of the
  graph runs it in stream order, with the current contents of memory. Without a GPU, the tests do
  nothing.
*/
#include "device/device.h"
#include "trs_test.h"

#include <string.h>

enum { N = 1000, BYTES = N * (int)sizeof(int) };

static const TrsDeviceOps *find_device(void)
{
  int n_devices;
  char why_not[256];

  assert_petsc_ok(trs_device_cuda.available(&n_devices, why_not, sizeof(why_not)));
  if (n_devices == 0) skip();
  assert_petsc_ok(trs_device_cuda.setup(0, 1));
  assert_petsc_ok(TrsDeviceCheck(&trs_device_cuda));
  return &trs_device_cuda;
}

static void test_replay(void **state)
{
  const TrsDeviceOps *device = find_device();
  TrsStream stream;
  TrsGraph graph, empty;
  void *memory, *kept;
  int *host;

  (void)state;
  assert_petsc_ok(device->stream_create("compute", &stream));
  assert_petsc_ok(device->alloc(BYTES, &memory));
  assert_petsc_ok(device->alloc(BYTES, &kept));
  assert_petsc_ok(device->alloc_host(2 * BYTES, (void **)&host));
  host[0] = 1;
  assert_petsc_ok(device->copy(kept, host, BYTES, stream));
  assert_petsc_ok(device->capture_start(stream));
  assert_petsc_ok(device->copy(memory, host, BYTES, stream));
  assert_petsc_ok(device->zero(kept, BYTES, stream));
  assert_petsc_ok(device->copy(host + N, memory, BYTES, stream));
  assert_petsc_ok(device->capture_end(stream, &graph));
  assert_non_null(graph);
  for (int round = 0; round < 3; round++) {
    /* the capture did not run the work; the launch reads the current contents */
    assert_petsc_ok(device->copy(host + 1, kept, (int64_t)sizeof(int), stream));
    assert_petsc_ok(device->stream_synchronize(stream));
    assert_int_equal(host[1], round ? 0 : 1);
    host[0] = 5 + round;
    assert_petsc_ok(device->graph_launch(graph, stream));
    assert_petsc_ok(device->stream_synchronize(stream));
    assert_int_equal(host[N], 5 + round);
  }
  assert_petsc_ok(device->capture_start(stream));
  assert_petsc_ok(device->capture_end(stream, &empty));
  assert_null(empty);
  assert_petsc_ok(device->graph_launch(empty, stream));
  assert_petsc_ok(device->graph_destroy(&empty));
  assert_petsc_ok(device->graph_destroy(&graph));
  assert_null(graph);
  assert_petsc_ok(device->release(&memory));
  assert_petsc_ok(device->release(&kept));
  assert_petsc_ok(device->release_host((void **)&host));
  assert_petsc_ok(device->stream_destroy(&stream));
}

/* Releases of both kinds of memory are counted, except for releases of NULL. */
static void test_releases(void **state)
{
  const TrsDeviceOps *device = find_device();
  void *memory, *host, *none = NULL;
  int64_t before = device->releases();

  (void)state;
  assert_petsc_ok(device->alloc(BYTES, &memory));
  assert_petsc_ok(device->alloc_host(BYTES, &host));
  assert_petsc_ok(device->release(&none));
  assert_int_equal(device->releases(), before);
  assert_petsc_ok(device->release(&memory));
  assert_int_equal(device->releases(), before + 1);
  assert_petsc_ok(device->release_host(&host));
  assert_int_equal(device->releases(), before + 2);
}

/* A capture that was dropped, whether or not it had failed, leaves the stream as before. */
static void test_dropped(void **state)
{
  const TrsDeviceOps *device = find_device();
  TrsStream stream;
  void *memory, *other;

  (void)state;
  assert_petsc_ok(device->stream_create("compute", &stream));
  assert_petsc_ok(device->alloc(BYTES, &memory));
  for (int fails = 0; fails < 2; fails++) {
    assert_petsc_ok(device->capture_start(stream));
    assert_petsc_ok(device->zero(memory, BYTES, stream));
    if (fails) assert_true(device->alloc(BYTES, &other) != 0);
    TrsErrorClear();
    assert_petsc_ok(device->capture_end(stream, NULL));
    assert_petsc_ok(device->zero(memory, BYTES, stream));
    assert_petsc_ok(device->stream_synchronize(stream));
  }
  assert_petsc_ok(device->release(&memory));
  assert_petsc_ok(device->stream_destroy(&stream));
}

/* If a capture does not allow an operation, there is an error, and no graph is created. */
static void test_refused(void **state)
{
  const TrsDeviceOps *device = find_device();
  TrsStream stream;
  TrsGraph graph;
  void *memory;

  (void)state;
  assert_petsc_ok(device->stream_create("compute", &stream));
  assert_petsc_ok(device->capture_start(stream));
  assert_true(device->alloc(BYTES, &memory) != 0);
  assert_true(device->capture_end(stream, &graph) != 0);
  assert_null(graph);
  TrsErrorClear();
  assert_petsc_ok(device->capture_start(stream));
  assert_true(device->stream_synchronize(stream) != 0);
  assert_true(device->capture_end(stream, &graph) != 0);
  TrsErrorClear();
  assert_petsc_ok(device->alloc(BYTES, &memory));
  assert_petsc_ok(device->zero(memory, BYTES, stream));
  assert_petsc_ok(device->release(&memory));
  assert_petsc_ok(device->stream_destroy(&stream));
}

TRS_TEST_MAIN(cmocka_unit_test(test_replay), cmocka_unit_test(test_releases), cmocka_unit_test(test_dropped),
              cmocka_unit_test(test_refused))
