/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
#include "core/clock.h"
#include "core/clock_offset.h"
#include "trs_test.h"

/*
  For all delays, the error is at most half the duration of the fastest round. If the delays of this
  round are equal in both directions, the error is 0.
*/
static void test_best(void **state)
{
  const double offset_s = 1234.5, there_s[] = {5e-3, 2e-6, 9e-6, 1e-3}, back_s[] = {1e-6, 2e-6, 1e-3, 5e-2};
  double sent[4], read[4], received[4];
  TrsClockOffset found;

  (void)state;
  for (int i = 0; i < 4; i++) {
    sent[i] = 100 + i;
    read[i] = sent[i] + there_s[i] + offset_s;
    received[i] = sent[i] + there_s[i] + back_s[i];
  }
  found = TrsClockBest(4, sent, read, received);
  assert_close(found.offset_s, offset_s, 1e-9, 0);
  assert_close(found.at_s, read[1], 0, 0);
  found = TrsClockBest(1, sent, read, received);
  assert_close(found.offset_s, offset_s, (there_s[0] + back_s[0]) / 2 + 1e-9, 0);
  /* the message to the other rank is slow, which looks like an offset */
  assert_true(found.offset_s - offset_s > 2e-3);
}

/*
  A clock gains 20 us per second. Between the two comparisons, its times are converted exactly.
  Before and after this period, the converted times still keep their order.
*/
static void test_drift(void **state)
{
  const double drift = 20e-6, start_s = 50, length_s = 300;
  const TrsClockOffset first = {.at_s = 7 + start_s * (1 + drift), .offset_s = 7 + start_s * drift};
  const TrsClockOffset last = {.at_s = 7 + (start_s + length_s) * (1 + drift),
                               .offset_s = 7 + (start_s + length_s) * drift};
  double before_s = -1e9;

  (void)state;
  for (int i = -20; i <= 120; i++) {
    const double true_s = start_s + length_s * i / 100, there_s = 7 + true_s * (1 + drift);
    const double found_s = TrsClockToRank0(&first, &last, there_s);

    if (i >= 0 && i <= 100) assert_close(found_s, true_s, 1e-9, 0);
    assert_true(found_s > before_s);
    before_s = found_s;
  }
  /* there is only one comparison */
  assert_close(TrsClockToRank0(&first, &first, first.at_s + 5), start_s + 5, 1e-9, 0);
}

/*
  If the time between two comparisons is shorter than the comparisons' accuracy, the converted times
  keep their order and their distance.
*/
static void test_close_comparisons(void **state)
{
  const TrsClockOffset first = {.at_s = 100, .offset_s = 7};

  (void)state;
  for (int sign = -1; sign <= 1; sign += 2) {
    const TrsClockOffset last = {.at_s = 100.002, .offset_s = 7 + sign * 0.003};
    const double before_s = TrsClockToRank0(&first, &last, first.at_s),
                 after_s = TrsClockToRank0(&first, &last, last.at_s);

    assert_close(before_s, 93 - sign * 0.0015, 1e-9, 0);
    assert_close(after_s - before_s, 0.002, 1e-9, 0);
  }
}

/*
  Ranks of one host share a clock. The measured offset is at most half the duration of a round, and
  on rank 0 the offset is 0.
*/
static void test_measure(void **state)
{
  const double before_s = TrsClock();
  TrsClockOffset found;

  (void)state;
  assert_petsc_ok(TrsClockMeasure(MPI_COMM_WORLD, &found));
  assert_true(found.at_s >= before_s && found.at_s <= TrsClock());
  assert_close(found.offset_s, 0, trs_rank() ? (TrsClock() - before_s) / 2 : 0, 0);
}

TRS_TEST_MAIN(cmocka_unit_test(test_best), cmocka_unit_test(test_drift),
              cmocka_unit_test(test_close_comparisons), cmocka_unit_test(test_measure))
