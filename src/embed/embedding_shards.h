/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The rectangles of tables that this rank holds: weights and optimizer state, allocated, filled and listed for checkpoints here.
  A table never exists whole on a rank unless the plan says so.
*/
#pragma once

#include "embed/row_cache.h"
#include "io/state.h"
#include "optim/sparse_optimizer.h"
#include "spec/sharding_plan.h"

typedef struct {
  int table;       /* index into the TrsTableConfigs */
  int column;      /* which column block of its table, from 0 */
  PetscBool whole; /* data_parallel: every rank holds the same */
  PetscBool
      on_host; /* kernels ..._uvm and ..._uvm_caching (quantised: uncached): rows in host memory that the device reads */
  PetscBool state_on_host[TRS_TBE_STATES];
  TrsRowCacheWish cache; /* of fused_uvm_caching */
  TrsTbeTable tbe;       /* memory owned by the TrsEmbeddingShards */
} TrsEmbeddingShard;

typedef struct {
  const TrsDeviceOps *device;
  const TrsTableConfigs *tables;
  const TrsShardingPlan *plan;
  const TrsSparseOptimizers *optimizers; /* NULL: none */
  PetscBool
      shared_rowwise;  /* do the column shards of a row keep equal row-wise states? Set after Create; false */
  PetscBool quantised; /* rows of TRS_ROWS_TBE (compute/quant.h), for lookups alone */
  int n;
  TrsEmbeddingShard *shard; /* [n] by table, then in the plan's order of shards; empty rectangles too */
} TrsEmbeddingShards;

/*
  TrsEmbeddingShardsCreate - Allocate this rank's shards, all zero; TrsEmbeddingShardsFill() or a checkpoint gives the weights.

  Rows of fused_uvm and fused_uvm_caching are in host memory that the device reads, and with them their element-wise states unless enforce_hbm says
  otherwise; row-wise states are always on the device. A lookup caches what is to be cached.

  Not collective. Memory that nobody has written lies where its first writer runs.

  In:     tables, plan, optimizers  borrowed
  Errors: MEMORY
*/
PetscErrorCode TrsEmbeddingShardsCreate(const TrsDeviceOps *device, const TrsTableConfigs *tables,
                                        const TrsShardingPlan *plan, int rank,
                                        const TrsSparseOptimizers *optimizers, TrsEmbeddingShards *shards);

/*
  TrsEmbeddingShardsFill - Give the weights their initial values, at the speed of memory: uniform in [init_min, init_max], a function of (seed, table, row,
  column) alone.

  Not collective. Not for quantised shards.
  Source: src/RULES.md, rule A21; TorchRec EmbeddingBagConfig.get_weight_init_min
*/
PetscErrorCode TrsEmbeddingShardsFill(const TrsEmbeddingShards *shards, uint64_t seed);

/*
  TrsEmbeddingShardsCreateQuantised - Allocate this rank's shards as rows of TRS_ROWS_TBE, all zero bytes: lookups alone, no states, nothing for
  TrsEmbeddingShardsAddState(). quant/ fills them. The rest as above.
*/
PetscErrorCode TrsEmbeddingShardsCreateQuantised(const TrsDeviceOps *device, const TrsTableConfigs *tables,
                                                 const TrsShardingPlan *plan, int rank,
                                                 TrsEmbeddingShards *shards);
PetscErrorCode TrsEmbeddingShardsDestroy(TrsEmbeddingShards *shards);

/* What a table's optimizer keeps of it, in the order of TrsTbeTable.state. */
typedef struct {
  int n;
  PetscBool rowwise[TRS_TBE_STATES]; /* one number a row, else one an element */
  PetscBool couples_columns;         /* does it take a row as a whole? */
} TrsEmbeddingStates;
TrsEmbeddingStates TrsEmbeddingShardsStates(const TrsEmbeddingShards *shards, int table);

/* The index of the shard that is shard number `index` of the table's plan, or -1 if another rank holds it. */
int TrsEmbeddingShardsFind(const TrsEmbeddingShards *shards, int table, int index);

/*
  Add embedding/<table>/weight and the optimizer's states to a checkpoint's list: on every rank all
  tables, with this rank's rectangles. The data pointers are the shards' own memory. src/RULES.md,
  rule A12, has the row-wise states of a table that is cut by columns. Not collective.
*/
PetscErrorCode TrsEmbeddingShardsAddState(const TrsEmbeddingShards *shards, TrsState *state);

/* Bytes of weights and of optimizer state on this rank. */
void TrsEmbeddingShardsBytes(const TrsEmbeddingShards *shards, int64_t *weight_bytes, int64_t *state_bytes);

/* Of these, what is in host memory for fused_uvm and fused_uvm_caching. */
int64_t TrsEmbeddingShardsHostBytes(const TrsEmbeddingShards *shards);
