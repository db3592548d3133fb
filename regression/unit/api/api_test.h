/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Code that the tests of the library share: checks of return codes, and batches whose samples do not
  depend on how they are distributed over ranks.
*/
#pragma once

#include "api/trshard.h"
#include "trs_test.h"

enum { FEATURES = 4, MOST = 9, MOST_IDS = 3 };
static const int64_t rows_of[FEATURES] = {50, 50, 7, 200};

#define assert_ok(call)            trs_assert_status((call), TRSHARD_SUCCESS, #call, __LINE__)
#define assert_fails(call, status) trs_assert_status((call), (status), #call, __LINE__)

static inline void trs_assert_status(int found, int expected, const char *call, int line)
{
  if (found == expected) return;
  print_error("line %d: %s returned %d, not %d: %s\n", line, call, found, expected, TrshardErrorMessage());
  _fail(__FILE__, line);
}

typedef struct {
  int32_t lengths[FEATURES * MOST * 4];
  int64_t values[FEATURES * MOST * MOST_IDS * 4];
  float weights[FEATURES * MOST * MOST_IDS * 4];
  TrshardBatch batch;
} batch_ids;

static inline uint64_t mix(uint64_t x)
{
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9U;
  return x ^ (x >> 32);
}

/* Rank r has r + 3 samples, so the ranks have different numbers of samples. */
static inline int64_t samples_of(int rank)
{
  return 3 + rank;
}

/*
  Make the samples of ranks first .. last - 1 in a step. A sample's ids depend only on the sample's
  index in the global batch.
*/
static inline void make_ids(int step, int first, int last, batch_ids *x)
{
  int64_t begin = 0, end, n_values = 0, bag = 0;

  for (int r = 0; r < first; r++) begin += samples_of(r);
  end = begin;
  for (int r = first; r < last; r++) end += samples_of(r);
  for (int f = 0; f < FEATURES; f++)
    for (int64_t sample = begin; sample < end; sample++) {
      const uint64_t random = mix((uint64_t)(step * 1000 + sample) * FEATURES + (uint64_t)f + 1);

      x->lengths[bag] = (int32_t)(random % (MOST_IDS + 1));
      for (int i = 0; i < x->lengths[bag]; i++, n_values++) {
        x->values[n_values] = (int64_t)(mix(random + (uint64_t)i) % (uint64_t)rows_of[f]);
        x->weights[n_values] = (float)(mix(random + 77 + (uint64_t)i) % 5) / 4;
      }
      bag++;
    }
  x->batch = (TrshardBatch){.batch = end - begin,
                            .lengths = x->lengths,
                            .n_values = n_values,
                            .values = x->values,
                            .weights = x->weights};
}
