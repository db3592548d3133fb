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
  int64_t per_epoch = TrsBatchOrderStepsPerEpoch(schedule), global = schedule->batch_size * schedule->size;
  int64_t rank = schedule->rank, left;

  out->epoch = step / per_epoch;
  out->position = step % per_epoch * global;
  left = schedule->num_samples - out->position;
  if (left >= global) {
    out->global_batch = global;
    out->batch = schedule->batch_size;
    out->first = out->position + rank * schedule->batch_size;
  } else {
    int64_t share = left / schedule->size, more = left % schedule->size;

    out->global_batch = left;
    out->batch = share + (rank < more);
    out->first = out->position + rank * share + (rank < more ? rank : more);
  }
}
