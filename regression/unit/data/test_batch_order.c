/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tests which samples a rank has in a step: numbers by hand, and the law that each pass uses every
  sample once.
*/
#include "data/batch_order.h"
#include "trs_test.h"

/*
  71 samples, 4 ranks with 4 samples each: 4 full steps and one step with 7 samples (golden case
  last_batch_epochs: 15 steps in 3 epochs; drop_last_epochs: 8 in 2).
*/
static void test_by_hand(void **state)
{
  TrsBatchOrder schedule = {.num_samples = 71, .batch_size = 4, .size = 4};
  const int64_t first[4] = {64, 66, 68, 70}, batch[4] = {2, 2, 2, 1};

  (void)state;
  assert_int_equal(3 * TrsBatchOrderStepsPerEpoch(&schedule), 15);
  for (schedule.rank = 0; schedule.rank < 4; schedule.rank++) {
    TrsBatchOrderStep step;

    TrsBatchOrderAt(&schedule, 6, &step); /* second step of the second pass */
    assert_int_equal(step.epoch, 1);
    assert_int_equal(step.position, 16);
    assert_int_equal(step.first, 16 + 4 * schedule.rank);
    assert_int_equal(step.batch, 4);
    assert_int_equal(step.global_batch, 16);
    TrsBatchOrderAt(&schedule, 9, &step); /* the last step */
    assert_int_equal(step.global_batch, 7);
    assert_int_equal(step.first, first[schedule.rank]);
    assert_int_equal(step.batch, batch[schedule.rank]);
  }
  schedule.drop_last = PETSC_TRUE;
  assert_int_equal(2 * TrsBatchOrderStepsPerEpoch(&schedule), 8);
  schedule.num_samples = 15;
  assert_int_equal(TrsBatchOrderStepsPerEpoch(&schedule), 0);
}

static void test_every_sample_once(void **state)
{
  (void)state;
  for (int size = 1; size <= 8; size++) {
    for (int64_t n = 1; n <= 40; n++) {
      for (int64_t batch_size = 1; batch_size <= 5; batch_size++) {
        TrsBatchOrder schedule = {.num_samples = n, .batch_size = batch_size, .size = size};
        int64_t next = 0, steps = TrsBatchOrderStepsPerEpoch(&schedule);

        for (int64_t s = 2 * steps; s < 3 * steps; s++) {
          int64_t sum = 0;

          for (schedule.rank = 0; schedule.rank < size; schedule.rank++) {
            TrsBatchOrderStep step;

            TrsBatchOrderAt(&schedule, s, &step);
            assert_int_equal(step.epoch, 2);
            assert_int_equal(step.first, next);
            next += step.batch;
            sum += step.batch;
            if (schedule.rank == size - 1) assert_int_equal(sum, step.global_batch);
          }
        }
        assert_int_equal(next, n);
      }
    }
  }
}

/*
  A stream of 10, then 17, samples that is read from sample 3 on, in step 5, with global batches of
  6 samples: 3 .. 8 | 9 .. 14 | 15, 16.
*/
static void test_stream(void **state)
{
  TrsBatchOrder schedule = {.num_samples = 10,
                            .batch_size = 3,
                            .size = 2,
                            .rank = 1,
                            .is_stream = PETSC_TRUE,
                            .first_step = 5,
                            .first_sample = 3};
  TrsBatchOrderStep step;

  (void)state;
  assert_int_equal(TrsBatchOrderStepsPerEpoch(&schedule), 6);
  schedule.num_samples = 17;
  assert_int_equal(TrsBatchOrderStepsPerEpoch(&schedule), 7);
  TrsBatchOrderAt(&schedule, 6, &step);
  assert_true(step.epoch == 0 && step.position == 9 && step.global_batch == 6 && step.first == 12 &&
              step.batch == 3);
  schedule.has_ended = PETSC_TRUE;
  assert_int_equal(TrsBatchOrderStepsPerEpoch(&schedule), 8);
  TrsBatchOrderAt(&schedule, 7, &step);
  assert_true(step.epoch == 0 && step.position == 15 && step.global_batch == 2 && step.first == 16 &&
              step.batch == 1);
  schedule.drop_last = PETSC_TRUE;
  assert_int_equal(TrsBatchOrderStepsPerEpoch(&schedule), 7);
}

TRS_TEST_MAIN(cmocka_unit_test(test_by_hand), cmocka_unit_test(test_every_sample_once),
              cmocka_unit_test(test_stream))
