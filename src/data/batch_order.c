/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/batch_order.h"

int64_t TrsBatchOrderStepsPerEpoch(const TrsBatchOrder *schedule)
{
  int64_t global = schedule->batch_size * schedule->size;
  int64_t whole = schedule->num_samples / global;

  return !schedule->drop_last && schedule->num_samples % global ? whole + 1 : whole;
}

void TrsBatchOrderAt(const TrsBatchOrder *schedule, int64_t step, TrsBatchOrderStep *out)
{
  const int64_t per_epoch = TrsBatchOrderStepsPerEpoch(schedule),
                global = schedule->batch_size * schedule->size, position = step % per_epoch * global,
                left = schedule->num_samples - position, n = left < global ? left : global;
  const int64_t first = TrsBatchOrderShare(n, schedule->size, schedule->rank);

  out->epoch = step / per_epoch;
  out->position = position;
  out->global_batch = n;
  out->first = position + first;
  out->batch = TrsBatchOrderShare(n, schedule->size, schedule->rank + 1) - first;
}
