/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Tests the recorded work of a device's streams, on the host's clock. Without a GPU, the tests do
  nothing.
*/
#include "core/clock.h"
#include "device/timeline.h"
#include "trs_test.h"

static const TrsDeviceOps *find_device(void)
{
  int n_devices;
  char why_not[256];

  assert_petsc_ok(trs_device_cuda.available(&n_devices, why_not, sizeof(why_not)));
  if (n_devices == 0) skip();
  assert_petsc_ok(trs_device_cuda.setup(0, 1));
  return &trs_device_cuda;
}

/*
  Tolerance between the clocks. An operation that takes about 0.01 ms compares the GPU's clock with
  the host's. It may take longer on a busy machine.
*/
#define SLACK_S 1e-1

/*
  A span is within its step: after the time when the host enqueued its work, and before the time
  when the host saw that it was complete. Spans of a stream do not overlap.
*/
static void test_order(void **state)
{
  enum { BYTES = 1 << 16, STEPS = 3 };
  const TrsDeviceOps *device = find_device();
  double before_s[STEPS + 1];
  TrsStream stream;
  TrsTraceSpan *span;
  int64_t n, n_lost;
  void *data;

  (void)state;
  assert_petsc_ok(device->stream_create("test", &stream));
  assert_petsc_ok(device->alloc(BYTES, &data));
  assert_petsc_ok(TrsTraceOpen(64, 1, 1 + STEPS, PETSC_TRUE));
  assert_petsc_ok(TrsTimelineOpen(device));
  /* the first and the last step are not recorded */
  for (int64_t step = 0; step < STEPS + 2; step++) {
    if (step >= 1 && step <= STEPS + 1) before_s[step - 1] = TrsClock();
    TrsTraceStepBegin(step);
    assert_petsc_ok(TrsTimelineMark(TRS_TRACE_COMPUTE, stream, TRS_STAGE_LOOKUP));
    assert_petsc_ok(device->zero(data, BYTES, stream));
    assert_petsc_ok(TrsTimelineMark(TRS_TRACE_COMPUTE, stream, TRS_STAGE_DENSE_FORWARD));
    assert_petsc_ok(device->zero(data, BYTES, stream));
    assert_petsc_ok(TrsTimelineMark(TRS_TRACE_COMPUTE, stream, TRS_STAGE_NONE));
    TrsTraceStepEnd();
    assert_petsc_ok(device->stream_synchronize(stream));
  }
  assert_petsc_ok(TrsTimelineFinish(&n_lost));
  assert_int_equal(n_lost, 0);
  assert_petsc_ok(TrsTraceSpans(&n, &span, &n_lost));
  assert_int_equal(n, STEPS + 2 * STEPS); /* the host's steps, and two stages in each step */
  for (int64_t i = STEPS; i < n; i++) {
    const int64_t s = (i - STEPS) / 2;

    assert_int_equal(span[i].row, TRS_TRACE_COMPUTE);
    assert_int_equal(span[i].what, (i - STEPS) % 2 ? TRS_STAGE_DENSE_FORWARD : TRS_STAGE_LOOKUP);
    assert_int_equal(span[i].step, s + 1);
    assert_true(span[i].start_s >= before_s[s] - SLACK_S && span[i].end_s <= before_s[s + 1] + SLACK_S);
    assert_true(span[i].end_s >= span[i].start_s);
    assert_true(i == STEPS || span[i].start_s >= span[i - 1].end_s - 1e-6);
  }
  assert_petsc_ok(PetscFree(span));
  assert_petsc_ok(TrsTimelineClose());
  assert_petsc_ok(TrsTraceClose());
  assert_petsc_ok(device->release(&data));
  assert_petsc_ok(device->stream_destroy(&stream));
}

/*
  A span that has not ended keeps its slot. If a span finds no free slot, it is counted, and the
  host does not wait. All spans that ended are recorded.
*/
static void test_room(void **state)
{
  const TrsDeviceOps *device = find_device();
  TrsTimelineSpan open, other;
  TrsStream stream;
  TrsTraceSpan *span;
  int64_t n, n_lost;

  (void)state;
  assert_petsc_ok(device->stream_create("test", &stream));
  assert_petsc_ok(TrsTraceOpen(2 * TRS_TIMELINE_SPANS, 0, 1, PETSC_TRUE));
  assert_petsc_ok(TrsTimelineOpen(device));
  TrsTraceStepBegin(0);
  assert_petsc_ok(TrsTimelineBegin(TRS_TRACE_EXCHANGE, stream, TRS_TRACE_DENSE, &open));
  for (int i = 0; i < TRS_TIMELINE_SPANS + 4; i++) {
    assert_petsc_ok(TrsTimelineBegin(TRS_TRACE_EXCHANGE, stream, TRS_TRACE_DENSE, &other));
    assert_true((other != NULL) == (i < TRS_TIMELINE_SPANS - 1));
    TrsTimelineBytes(other, i);
    assert_petsc_ok(TrsTimelineEnd(&other, stream));
  }
  TrsTraceStepEnd();
  /* this span is not recorded */
  assert_petsc_ok(TrsTimelineBegin(TRS_TRACE_EXCHANGE, stream, TRS_TRACE_DENSE, &other));
  assert_null(other);
  assert_petsc_ok(TrsTimelineFinish(&n_lost));
  assert_int_equal(n_lost, 5);
  assert_petsc_ok(TrsTraceSpans(&n, &span, &n_lost));
  assert_int_equal(n, 1 + TRS_TIMELINE_SPANS - 1);
  for (int i = 1; i < n; i++) assert_true(span[i].bytes >= 0 && span[i].bytes < TRS_TIMELINE_SPANS - 1);
  assert_petsc_ok(PetscFree(span));
  assert_petsc_ok(TrsTimelineClose());
  assert_petsc_ok(TrsTraceClose());
  assert_petsc_ok(device->stream_destroy(&stream));
}

/* A device whose streams run immediately has no timeline. Recording succeeds and has no effect. */
static void test_inline(void **state)
{
  TrsTimelineSpan span;
  int64_t n_lost;

  (void)state;
  assert_false(TrsTimelineHas(trs_device_backends[0]));
  assert_petsc_ok(TrsTraceOpen(8, 0, 1, PETSC_FALSE));
  assert_petsc_ok(TrsTimelineOpen(trs_device_backends[0]));
  TrsTraceStepBegin(0);
  assert_petsc_ok(TrsTimelineBegin(TRS_TRACE_EXCHANGE, NULL, TRS_TRACE_DENSE, &span));
  assert_null(span);
  assert_petsc_ok(TrsTimelineMark(TRS_TRACE_COMPUTE, NULL, TRS_STAGE_LOOKUP));
  TrsTraceStepEnd();
  assert_petsc_ok(TrsTimelineFinish(&n_lost));
  assert_int_equal(n_lost, 0);
  assert_petsc_ok(TrsTimelineClose());
  assert_petsc_ok(TrsTraceClose());
}

TRS_TEST_MAIN(cmocka_unit_test(test_order), cmocka_unit_test(test_room), cmocka_unit_test(test_inline))
