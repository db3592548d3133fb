/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The schedule assigns samples to each rank in each step (src/RULES.md, rules A17, A28). It is pure
  arithmetic with the same result on all ranks.

  An epoch's order is cut into global batches of W*B samples. Without drop_last the epoch ends with
  a smaller batch of n samples. Rank r then takes n/W samples, and the first n mod W ranks take one
  more (TrsBatchOrderShare). Passes follow each other until the steps are done.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  int64_t num_samples;
  int64_t batch_size; /* B, samples per rank */
  int rank, size;
  PetscBool drop_last;
} TrsBatchOrder;

/* One step's part of the epoch's order. */
typedef struct {
  int64_t epoch, position; /* position: samples of the epoch before this step */
  int64_t first, batch;    /* this rank's samples are first .. first+batch-1 */
  int64_t global_batch;
} TrsBatchOrderStep;

/* The beginning of a rank's share of n samples, for 0 <= rank <= size. */
static inline int64_t TrsBatchOrderShare(int64_t n, int size, int rank)
{
  const int64_t more = n % size;

  return n / size * rank + (rank < more ? rank : more);
}

/* Return the steps of one epoch, or 0 if drop_last leaves none. */
int64_t TrsBatchOrderStepsPerEpoch(const TrsBatchOrder *schedule);

/* Describe a step of the whole training, counted from 0. An epoch must have at least one step. */
void TrsBatchOrderAt(const TrsBatchOrder *schedule, int64_t step, TrsBatchOrderStep *out);
