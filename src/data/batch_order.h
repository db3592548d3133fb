/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The schedule: it assigns samples to each rank in each step (src/RULES.md, rules A17, A28). It is
  computed without data, with the same result on all ranks.

  The samples of an epoch, in its order, are divided into global batches of W*B samples. Without
  drop_last, the last batch of the epoch may be smaller, with n samples. Each rank then has n/W
  samples of it, and the first n mod W ranks have one more (TrsBatchOrderShare). Epochs follow each
  other until all steps are done.

  A stream is one epoch whose data grows. Until the stream ends, it has only whole global batches,
  because the samples of a later file complete the last batch. Samples are counted from the
  beginning of the stream. A reader may start at any sample of the stream.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  int64_t num_samples;
  int64_t batch_size; /* B, the number of samples per rank */
  int rank, size;
  PetscBool drop_last;
  PetscBool is_stream, has_ended;
  /* only for a stream: the first step that is read, and the number of samples before this step */
  int64_t first_step, first_sample;
} TrsBatchOrder;

/* The samples of one step. */
typedef struct {
  int64_t epoch, position; /* position is the number of samples of the epoch before this step */
  /* this rank's samples are first .. first + batch - 1 in the epoch's order */
  int64_t first, batch;
  int64_t global_batch;
} TrsBatchOrderStep;

/*
  Return the index of the first sample of a rank's share, if n samples are divided among `size`
  ranks. 0 <= rank <= size.
*/
static inline int64_t TrsBatchOrderShare(int64_t n, int size, int rank)
{
  const int64_t more = n % size;

  return n / size * rank + (rank < more ? rank : more);
}

/*
  Return the number of steps in an epoch. It is 0 if drop_last leaves no batch. For a stream, it is
  the number of steps after which the data that it has so far is used up.
*/
int64_t TrsBatchOrderStepsPerEpoch(const TrsBatchOrder *schedule);

/* Describe a step of the whole training, counted from 0. An epoch must have at least one step. */
void TrsBatchOrderAt(const TrsBatchOrder *schedule, int64_t step, TrsBatchOrderStep *out);
