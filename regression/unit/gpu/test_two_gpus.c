/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  A process that uses two GPUs in turn: traces, products, and the memory of the default streams
  belong to one GPU each. On a machine with fewer GPUs, the tests do nothing.
*/
#include "compute/compute_ops.h"
#include "device/timeline.h"
#include "gpu/device/device_cuda.h"
#include "trs_test.h"

#include <string.h>

static const TrsDeviceOps *const device = &trs_device_cuda;

static void find_two(void)
{
  int n_devices;
  char why_not[256];

  assert_petsc_ok(device->available(&n_devices, why_not, sizeof(why_not)));
  if (n_devices < 2) skip();
  assert_petsc_ok(device->setup(0, 1));
}

static void use(int gpu)
{
  int had;

  assert_petsc_ok(device->use(gpu, &had));
}

/* Each GPU's times count from an event of its own. */
static void test_traces(void **state)
{
  (void)state;
  find_two();
  for (int run = 0; run < 3; run++) {
    TrsTraceSpan *span;
    TrsStream stream;
    int64_t n, n_lost;

    use(run % 2);
    assert_petsc_ok(device->stream_create("compute", &stream));
    assert_petsc_ok(TrsTraceOpen(8, 0, 1, PETSC_TRUE));
    assert_petsc_ok(TrsTimelineOpen(device));
    TrsTraceStepBegin(0);
    assert_petsc_ok(TrsTimelineMark(TRS_TRACE_COMPUTE, stream, TRS_STAGE_LOOKUP));
    assert_petsc_ok(TrsTimelineMark(TRS_TRACE_COMPUTE, stream, TRS_STAGE_NONE));
    TrsTraceStepEnd();
    assert_petsc_ok(TrsTimelineFinish(&n_lost));
    assert_petsc_ok(TrsTraceSpans(&n, &span, &n_lost));
    assert_int_equal(n, 2);
    assert_true(span[1].start_s >= span[0].start_s - 0.1 && span[1].end_s >= span[1].start_s);
    assert_petsc_ok(PetscFree(span));
    assert_petsc_ok(TrsTimelineClose());
    assert_petsc_ok(TrsTraceClose());
    assert_petsc_ok(device->stream_destroy(&stream));
  }
}

/*
  Compute the same product on both GPUs in turn. A choice that one GPU made must not be used on the
  other.
*/
static void test_products(void **state)
{
  enum { N = 16, BYTES = N * N * (int)sizeof(float) };
  const TrsComputeOps *cuda;

  (void)state;
  find_two();
  assert_petsc_ok(TrsComputeFind("cuda", &cuda));
  for (int turn = 0; turn < 4; turn++) {
    static float a[N * N], found[N * N];
    void *on_device[2];

    use(turn % 2);
    for (int i = 0; i < N * N; i++) a[i] = i % (N + 1) ? 0.0f : (float)(turn + 1); /* diagonal */
    for (int i = 0; i < 2; i++) assert_petsc_ok(device->alloc(BYTES, &on_device[i]));
    assert_petsc_ok(device->copy(on_device[0], a, BYTES, NULL));
    assert_petsc_ok(cuda->multiply(
        NULL, &(TrsMatrixProduct){PETSC_FALSE, PETSC_FALSE, N, N, N, 1.0f, TrsFloats(on_device[0], N),
                                  TrsFloats(on_device[0], N), 0.0f, TrsFloats(on_device[1], N)}));
    assert_petsc_ok(device->copy(found, on_device[1], BYTES, NULL));
    assert_petsc_ok(device->stream_synchronize(NULL));
    for (int i = 0; i < N * N; i++)
      assert_true(found[i] == (i % (N + 1) ? 0.0f : (float)((turn + 1) * (turn + 1))));
    for (int i = 0; i < 2; i++) assert_petsc_ok(device->release(&on_device[i]));
  }
}

/* The default stream of each GPU has its own memory, which it keeps. */
static void test_rooms(void **state)
{
  void *room[4];
  unsigned *counters[4];

  (void)state;
  find_two();
  for (int turn = 0; turn < 4; turn++) {
    use(turn % 2);
    assert_petsc_ok(TrsCudaStreamScratch(NULL, 256, &room[turn]));
    assert_petsc_ok(TrsCudaStreamCounters(NULL, 4, &counters[turn]));
  }
  assert_true(room[0] != room[1] && counters[0] != counters[1]);
  assert_true(room[0] == room[2] && room[1] == room[3]);
  assert_true(counters[0] == counters[2] && counters[1] == counters[3]);
}

TRS_TEST_MAIN(cmocka_unit_test(test_traces), cmocka_unit_test(test_products), cmocka_unit_test(test_rooms))
