/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Schedule: which samples each rank takes in each step (src/RULES.md, rules A17, A28). This is pure
  arithmetic with the same result on all ranks.

  An epoch's order is cut into global batches of W*B samples. Without drop_last the epoch ends with a
  smaller batch of n samples, of which rank r takes n/W, the first n mod W ranks one more
  (TrsBatchOrderShare). Passes follow each other until the steps are done.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  int64_t num_samples;
  int64_t batch_size; /* B of a rank */
  int rank, size;
  PetscBool drop_last;
} TrsBatchOrder;

/* One step's part of the epoch's order. */
typedef struct {
  int64_t epoch, position; /* position: samples of the epoch before this step */
  int64_t first, batch;    /* this rank's samples: first .. first+batch-1 */
  int64_t global_batch;
} TrsBatchOrderStep;

/* The first of n samples that `rank` takes, 0 <= rank <= size: where the ranks' shares begin. */
static inline int64_t TrsBatchOrderShare(int64_t n, int size, int rank)
{
  const int64_t more = n % size;

  return n / size * rank + (rank < more ? rank : more);
}

/* Steps of one epoch; 0 when drop_last leaves none. */
int64_t TrsBatchOrderStepsPerEpoch(const TrsBatchOrder *schedule);

/* Step s of the whole training, from 0; needs at least one step per epoch. */
void TrsBatchOrderAt(const TrsBatchOrder *schedule, int64_t step, TrsBatchOrderStep *out);
