/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares the overlap of exchanges and compute with results by hand, on a time axis in seconds. */
#include "report/overlap.h"
#include "trs_test.h"

#define KIND(what) (1U << (what))

static TrsTraceSpan span_of(int row, int what, double start_s, double end_s)
{
  return (TrsTraceSpan){.row = row, .what = what, .start_s = start_s, .end_s = end_s};
}

static TrsOverlap overlap_of(int64_t n, const TrsTraceSpan *span, unsigned kinds, TrsTraceRow row)
{
  TrsOverlap overlap;

  assert_petsc_ok(TrsOverlapFind(n, span, kinds, row, &overlap));
  return overlap;
}

static void assert_overlap(TrsOverlap found, double under_way_s, double hidden_s)
{
  assert_close(found.under_way_s, under_way_s, 1e-12, 0);
  assert_close(found.hidden_s, hidden_s, 1e-12, 0);
}

/*
  The two steps are 0-10 and 12-20. Id exchanges run at 1-5, 3-6 (together 1-6) and 9-13 (within
  steps 9-10 and 12-13): 7 s. Compute runs at 2-4, 5-10 and 12.5-14.
*/
static void test_host(void **state)
{
  const TrsTraceSpan span[] = {
      span_of(TRS_TRACE_MAIN, TRS_TRACE_STEP, 0, 10),
      span_of(TRS_TRACE_MAIN, TRS_STAGE_IO, 0, 2), /* this span is not compute */
      span_of(TRS_TRACE_MAIN, TRS_STAGE_LOOKUP, 2, 4),
      span_of(TRS_TRACE_MAIN, TRS_STAGE_INPUT_DIST, 4, 5), /* neither compute nor an exchange */
      span_of(TRS_TRACE_MAIN, TRS_STAGE_DENSE_FORWARD, 5, 7),
      span_of(TRS_TRACE_MAIN, TRS_STAGE_OPTIMIZER, 7, 10),
      span_of(TRS_TRACE_MAIN, TRS_TRACE_STEP, 12, 20),
      span_of(TRS_TRACE_MAIN, TRS_STAGE_EMBEDDING_BACKWARD, 12.5, 14),
      span_of(TRS_TRACE_READER, TRS_TRACE_READ, 0, 20),
      span_of(TRS_TRACE_EXCHANGE, TRS_TRACE_INPUT_DIST, 1, 5),
      span_of(TRS_TRACE_EXCHANGE, TRS_TRACE_INPUT_DIST, 9, 13),
      span_of(TRS_TRACE_EXCHANGE + 1, TRS_TRACE_INPUT_DIST, 3, 6), /* this span has its own lane */
      span_of(TRS_TRACE_EXCHANGE + 2, TRS_TRACE_OUTPUT_DIST, 10, 12),
      span_of(-1, TRS_TRACE_INPUT_DIST, 0, 20), /* this span is not shown and not counted */
  };
  const int64_t n = (int64_t)(sizeof(span) / sizeof(span[0]));
  const unsigned ids = KIND(TRS_TRACE_INPUT_DIST) | KIND(TRS_STAGE_INPUT_DIST);
  const TrsOverlap found = overlap_of(n, span, ids, TRS_TRACE_MAIN);

  (void)state;
  assert_overlap(found, 7, (4 - 2) + (6 - 5) + (10 - 9) + (13 - 12.5));
  assert_close(found.steps_s, 18, 1e-12, 0);
  assert_close(found.compute_s, 2 + 5 + 1.5, 1e-12, 0);
  assert_int_equal(found.n_steps, 2);
  /* this span is between steps */
  assert_overlap(overlap_of(n, span, KIND(TRS_TRACE_OUTPUT_DIST), TRS_TRACE_MAIN), 0, 0);
  assert_overlap(overlap_of(n, span, KIND(TRS_TRACE_DENSE), TRS_TRACE_MAIN), 0, 0);
  assert_overlap(overlap_of(0, span, ids, TRS_TRACE_MAIN), 0, 0);
}

/*
  With a device, only the work on the device's compute stream counts as compute. The host's stages
  end early, so they do not overlap any exchange. Copies and the data_dist stream run at the same
  time as the compute stream.
*/
static void test_device(void **state)
{
  const TrsTraceSpan span[] = {
      span_of(TRS_TRACE_MAIN, TRS_TRACE_STEP, 0, 10),
      span_of(TRS_TRACE_MAIN, TRS_STAGE_LOOKUP, 0, 1),
      span_of(TRS_TRACE_COMPUTE, TRS_STAGE_LOOKUP, 3, 5),
      span_of(TRS_TRACE_COMPUTE, TRS_STAGE_OUTPUT_DIST, 5, 6), /* the compute stream waits */
      span_of(TRS_TRACE_COMPUTE, TRS_STAGE_DENSE_FORWARD, 6, 9),
      span_of(TRS_TRACE_DATA_DIST, TRS_STAGE_INPUT_DIST, 0, 1),
      span_of(TRS_TRACE_DATA_DIST, TRS_STAGE_INPUT_DIST, 4, 7),
      span_of(TRS_TRACE_MEMCPY, TRS_TRACE_COPY, 8, 12), /* this span ends after the last step */
      span_of(TRS_TRACE_EXCHANGE, TRS_TRACE_INPUT_DIST, 6.5, 8),
  };
  const int64_t n = (int64_t)(sizeof(span) / sizeof(span[0]));
  const unsigned ids = KIND(TRS_TRACE_INPUT_DIST) | KIND(TRS_STAGE_INPUT_DIST);

  (void)state;
  assert_overlap(overlap_of(n, span, ids, TRS_TRACE_COMPUTE), 1 + 4, (5 - 4) + (8 - 6));
  assert_overlap(overlap_of(n, span, KIND(TRS_TRACE_COPY), TRS_TRACE_COMPUTE), 2, 1);
  assert_overlap(overlap_of(n, span, ids | KIND(TRS_TRACE_COPY), TRS_TRACE_COMPUTE), 1 + 6, 1 + 3);
  assert_overlap(overlap_of(n, span, ids, TRS_TRACE_MAIN), 5, 1);
  assert_close(overlap_of(n, span, ids, TRS_TRACE_COMPUTE).compute_s, 2 + 3, 1e-12, 0);
}

/*
  The steps are 0-10, 10-20 and 22-30; the first one does not count. The device is idle at 10-11,
  14-15, 19-23 and 29-30. The host's stages are 10-10.5, 13-14.5 and 22-22.5.
*/
static void test_idle(void **state)
{
  const TrsTraceSpan span[] = {
      span_of(TRS_TRACE_MAIN, TRS_TRACE_STEP, 22, 30),
      span_of(TRS_TRACE_MAIN, TRS_TRACE_STEP, 0, 10),
      span_of(TRS_TRACE_MAIN, TRS_TRACE_STEP, 10, 20),
      span_of(TRS_TRACE_MAIN, TRS_STAGE_WAIT, 0, 3),
      span_of(TRS_TRACE_MAIN, TRS_STAGE_WAIT, 10, 10.5),
      span_of(TRS_TRACE_MAIN, TRS_STAGE_LOOKUP, 13, 14.5),
      span_of(TRS_TRACE_MAIN, TRS_STAGE_WAIT, 22, 22.5),
      span_of(TRS_TRACE_COMPUTE, TRS_STAGE_LOOKUP, 11, 12),
      span_of(TRS_TRACE_COMPUTE, TRS_STAGE_OUTPUT_DIST, 12, 13), /* the stream waits, in a stage */
      span_of(TRS_TRACE_COMPUTE, TRS_STAGE_DENSE_FORWARD, 13, 14),
      span_of(TRS_TRACE_COMPUTE, TRS_STAGE_DENSE_BACKWARD, 15, 19),
      span_of(TRS_TRACE_COMPUTE, TRS_STAGE_DENSE_BACKWARD, 23, 29),
      span_of(TRS_TRACE_COMPUTE, TRS_STAGE_OPTIMIZER, 31, 32), /* after the last step */
      span_of(TRS_TRACE_MEMCPY, TRS_TRACE_COPY, 10, 30),       /* another stream */
  };
  const int64_t n = (int64_t)(sizeof(span) / sizeof(span[0]));
  TrsIdle idle;

  (void)state;
  assert_petsc_ok(TrsOverlapIdle(n, span, &idle));
  assert_int_equal(idle.n_steps, 2);
  assert_close(idle.idle_s, 1 + 1 + 4 + 1, 1e-12, 0);
  assert_close(idle.stage_s[TRS_STAGE_WAIT], 0.5 + 0.5, 1e-12, 0);
  assert_close(idle.stage_s[TRS_STAGE_LOOKUP], 0.5, 1e-12, 0);
  assert_close(idle.between_s, 2, 1e-12, 0);
  assert_close(idle.stage_s[TRS_STAGE_NONE], 7 - 2 - 1.5, 1e-12, 0);
  assert_close(idle.stage_s[TRS_STAGE_DENSE_FORWARD], 0, 1e-12, 0);
  assert_petsc_ok(TrsOverlapIdle(2, span, &idle)); /* a device that does nothing */
  assert_int_equal(idle.n_steps, 1);
  assert_close(idle.idle_s, 8, 1e-12, 0);
  assert_petsc_ok(TrsOverlapIdle(1, span, &idle));
  assert_int_equal(idle.n_steps, 0);
  assert_close(idle.idle_s, 0, 1e-12, 0);
}

TRS_TEST_MAIN(cmocka_unit_test(test_host), cmocka_unit_test(test_device), cmocka_unit_test(test_idle))
