/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Estimates one shard's memory: weights, optimizer state, cache, and the inputs and outputs of a
  step.

  Source: TorchRec EmbeddingStorageEstimator; src/plan/RULES.md, section 5
*/
#pragma once

#include "plan/plan_settings.h"
#include "spec/sharding_plan.h"

__extension__ typedef __int128 TrsInt128;

/* Limit on a shard's bytes. It keeps sums over shards and steps within 64 bits. */
#define TRS_MAX_SHARD_BYTES (INT64_C(1) << 57)

typedef struct {
  TrsShardingType type;
  TrsComputeKernel kernel;
  PetscBool is_cuda, is_pooled, is_inference, at_peak_memory;
  TrsPlanPipeline pipeline;
  TrsOptimizerState optimizer_state;
  int world_size, group;
  int64_t n_rows, n_cols, table_bytes; /* size of the whole table */
  double ids, rows_out;                /* number of ids and of output rows in a rank's batch */
  double out_bytes;                    /* bytes per output element */
  double load_factor;                  /* 0 selects the default */
  int64_t n_passes;                    /* number of passes of a multipass prefetch; at least 1 */
  int merged_copies;                   /* copies that make the same update; up to 1: none */
  int64_t keys_row_bytes;              /* TrsTableKeysRowBytes() */
} TrsStorageInput;

/* Compute the bytes that a step needs for a shard's ids and output rows. Not collective. */
void TrsEstimateIo(const TrsStorageInput *in, int64_t rows, int64_t cols, int64_t *input, int64_t *output);

/*
  Compute the bytes that a pipeline on cuda needs for inputs and outputs. `prefetch` is 0 without a
  cache. Not collective.
*/
int64_t TrsEstimatePipelineIo(const TrsStorageInput *in, int64_t input, int64_t output, int64_t prefetch);

/* Estimate the memory of a shard of rows x cols. Not collective. */
TrsStorage TrsEstimateStorage(const TrsStorageInput *in, int64_t rows, int64_t cols);

/*
  ceil(n / d) as TorchRec computes it: the quotient is first rounded to double. Requires d > 0 and n
  >= 0.
*/
int64_t TrsCeilOfRoundedQuotient(TrsInt128 n, TrsInt128 d);
