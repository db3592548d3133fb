/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Tests the record of kernels: launches of a timed step are added up by name, launches of other
  steps, of a pause and of other threads are not, and launches without a free pair of events are
  counted. Without a GPU, the tests do nothing.
*/
#include "device/kernel_times.h"
#include "trs_test.h"

#include <pthread.h>
#include <string.h>

enum { BYTES = 4096 };

static const TrsDeviceOps *const device = &trs_device_cuda;
static TrsStream stream;
static void *memory;

static void launch(const char *name, double bytes)
{
  assert_petsc_ok(TrsKernelBegin(name, bytes, 0, stream));
  assert_petsc_ok(device->zero(memory, BYTES, stream));
  assert_petsc_ok(TrsKernelEnd(stream));
}

static void start(void)
{
  int n_devices;
  char why_not[256];

  assert_petsc_ok(device->available(&n_devices, why_not, sizeof(why_not)));
  if (n_devices == 0) skip();
  assert_petsc_ok(device->setup(0, 1));
  assert_petsc_ok(device->stream_create("compute", &stream));
  assert_petsc_ok(device->alloc(BYTES, &memory));
  assert_petsc_ok(TrsKernelTimesOpen(device));
}

static void end(void)
{
  assert_petsc_ok(TrsKernelTimesClose());
  assert_petsc_ok(device->release(&memory));
  assert_petsc_ok(device->stream_destroy(&stream));
}

static void *launch_apart(void *unused)
{
  launch("other thread", 0);
  return unused;
}

static void test_rows(void **state)
{
  const TrsKernelRow *row;
  int64_t n_steps, n_lost;
  pthread_t thread;
  int n;

  (void)state;
  start();
  launch("before", 0);
  for (int step = 0; step < 6; step++) {
    assert_petsc_ok(TrsKernelTimesStep((PetscBool)(step % 2)));
    launch("(kernel<float, 4>)", 0);
    launch("a product (<8>)", 100);
    TrsKernelTimesPause(PETSC_TRUE);
    launch("paused", 0);
    TrsKernelTimesPause(PETSC_FALSE);
    if (trs_kernels_are_timed) TrsKernelTimesCall("call", 10, 20);
    launch("kernel", 0);
    launch("a product (<8>)", 100); /* has its own row */
    TrsKernelTimesCallEnd();
    assert_int_equal(pthread_create(&thread, NULL, launch_apart, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
  }
  assert_petsc_ok(TrsKernelTimesRead(&n, &row, &n_steps, &n_lost));
  assert_int_equal(n, 4);
  assert_int_equal(n_steps, 3);
  assert_int_equal(n_lost, 0);
  assert_string_equal(row[0].name, "kernel");
  assert_string_equal(row[0].call, "");
  assert_int_equal(row[0].n, 3);
  assert_string_equal(row[1].name, "a product (<8>)");
  assert_int_equal(row[1].n, 6);
  assert_true(row[1].bytes == 600);
  assert_string_equal(row[3].name, "kernel");
  assert_string_equal(row[3].call, "call");
  for (int i = 0; i < 4; i++) assert_true((row[i].name[0] != '\0') == (row[i].seconds > 0));
  end();
}

/* The first launches of a step have events. The others are counted, and do not wait. */
static void test_room(void **state)
{
  const TrsKernelRow *row;
  int64_t n_steps, n_lost;
  int n;

  (void)state;
  start();
  for (int step = 0; step < 2; step++) {
    assert_petsc_ok(TrsKernelTimesStep(PETSC_TRUE));
    for (int i = 0; i < TRS_KERNEL_SPANS + 3; i++) launch("kernel", 0);
  }
  assert_petsc_ok(TrsKernelTimesRead(&n, &row, &n_steps, &n_lost));
  assert_int_equal(n, 1);
  assert_int_equal(row[0].n, 2 * TRS_KERNEL_SPANS);
  assert_int_equal(n_lost, 6);
  end();
}

TRS_TEST_MAIN(cmocka_unit_test(test_rows), cmocka_unit_test(test_room))
