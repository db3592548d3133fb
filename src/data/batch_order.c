/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/batch_order.h"

int64_t TrsBatchOrderStepsPerEpoch(const TrsBatchOrder *schedule)
{
  const int64_t global = schedule->batch_size * schedule->size;
  const int64_t samples = schedule->num_samples - (schedule->is_stream ? schedule->first_sample : 0);
  const PetscBool only_whole = (PetscBool)(schedule->drop_last ||
                                           (schedule->is_stream && !schedule->has_ended));
  const int64_t whole = (schedule->is_stream ? schedule->first_step : 0) + samples / global;

  return !only_whole && samples % global ? whole + 1 : whole;
}

/* Return the number of samples of the epoch before a step. */
static int64_t position_of(const TrsBatchOrder *schedule, int64_t step)
{
  const int64_t global = schedule->batch_size * schedule->size;

  if (schedule->is_stream) return schedule->first_sample + (step - schedule->first_step) * global;
  return step % TrsBatchOrderStepsPerEpoch(schedule) * global;
}

void TrsBatchOrderAt(const TrsBatchOrder *schedule, int64_t step, TrsBatchOrderStep *out)
{
  const int64_t global = schedule->batch_size * schedule->size, position = position_of(schedule, step),
                left = schedule->num_samples - position, n = left < global ? left : global;
  const int64_t first = TrsBatchOrderShare(n, schedule->size, schedule->rank);

  out->epoch = schedule->is_stream ? 0 : step / TrsBatchOrderStepsPerEpoch(schedule);
  out->position = position;
  out->global_batch = n;
  out->first = position + first;
  out->batch = TrsBatchOrderShare(n, schedule->size, schedule->rank + 1) - first;
}
