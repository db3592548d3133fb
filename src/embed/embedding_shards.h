/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The rectangles of tables that this rank holds. Weights and optimizer state are allocated, filled
  and listed for checkpoints here. A rank holds a whole table only if the plan says so.
*/
#pragma once

#include "embed/row_cache.h"
#include "io/state.h"
#include "optim/sparse_optimizer.h"
#include "spec/sharding_plan.h"

typedef struct {
  int table;       /* index into the TrsTableConfigs */
  int column;      /* number of its column block in the table, from 0 */
  PetscBool whole; /* data_parallel: every rank holds all rows and columns */
  /*
    The rows are in host memory that the device reads: kernels ..._uvm and ..._uvm_caching
    (quantised rows without a cache).
  */
  PetscBool on_host;
  PetscBool state_on_host[TRS_OPTIMIZER_STATES];
  TrsRowCacheWish cache; /* used for fused_uvm_caching */
  TrsTbeTable tbe;       /* the TrsEmbeddingShards owns its memory */
  void *map;             /* the pages of a file that have the rows; NULL: the rows have memory */
  int64_t map_bytes;
} TrsEmbeddingShard;

typedef struct {
  const TrsDeviceOps *device;
  const TrsTableConfigs *tables;
  const TrsShardingPlan *plan;
  const TrsSparseOptimizers *optimizers; /* NULL: no optimizer */
  /*
    The column shards of a row keep equal row-wise states. Create sets it to false; change it after
    Create.
  */
  PetscBool shared_rowwise;
  PetscBool quantised; /* rows of TRS_ROWS_TBE (compute/quant.h), for lookups alone */
  /*
    The placements that lookups of the shards may stack (placement.h). Create sets all there are;
    tests may set others after Create.
  */
  const struct TrsPlacementOps *const *placements;
  int n;
  /* [n] by table, then in the plan's order of shards, with empty rectangles */
  TrsEmbeddingShard *shard;
} TrsEmbeddingShards;

/*
  TrsEmbeddingShardsCreate - Allocate this rank's shards, all zero. TrsEmbeddingShardsFill() or a
  checkpoint gives the weights.

  Rows of fused_uvm and fused_uvm_caching lie in host memory that the device reads. So do their
  element-wise states, unless enforce_hbm says otherwise. Row-wise states are always on the device.
  The lookup makes the caches.

  Not collective. Memory that nobody has written lies near its first writer.

  In:     tables, plan, optimizers  borrowed
  Errors: MEMORY
*/
PetscErrorCode TrsEmbeddingShardsCreate(const TrsDeviceOps *device, const TrsTableConfigs *tables,
                                        const TrsShardingPlan *plan, int rank,
                                        const TrsSparseOptimizers *optimizers, TrsEmbeddingShards *shards);

/*
  TrsEmbeddingShardsFill - Give the weights their initial values, by the law of TrsTableConfig.init.

  A value depends on (seed, table, row, column) alone. Uniform numbers are made as fast as memory
  takes them, normal ones at some 10 ns each on every core.

  Not collective. Not for quantised shards.

  Source: src/RULES.md, rule A21; TorchRec EmbeddingBagConfig.init_fn, get_weight_init_min
*/
PetscErrorCode TrsEmbeddingShardsFill(const TrsEmbeddingShards *shards, uint64_t seed);

/*
  TrsEmbeddingShardsCreateQuantised - Allocate this rank's shards as rows of TRS_ROWS_TBE, all zero
  bytes.

  Such shards serve lookups alone: they have no states, and TrsEmbeddingShardsAddState() adds
  nothing for them. quant/ fills them. Everything else is as for TrsEmbeddingShardsCreate().
*/
PetscErrorCode TrsEmbeddingShardsCreateQuantised(const TrsDeviceOps *device, const TrsTableConfigs *tables,
                                                 const TrsShardingPlan *plan, int rank,
                                                 TrsEmbeddingShards *shards);
PetscErrorCode TrsEmbeddingShardsDestroy(TrsEmbeddingShards *shards);

/*
  TrsEmbeddingShardsMap - Let shard i of quantised shards have its rows in a file instead of memory.

  The rows are read-only. Pages come from the file when they are read, and processes share them. The
  file must keep its contents; it may be closed, and removed from its folder. Not collective. For
  devices of host memory.

  In:     fd, offset  of an open file, and the bytes before the shard's first row. The rows have no
                      gaps, and their elements must be aligned
  Errors: IO
*/
PetscErrorCode TrsEmbeddingShardsMap(const TrsEmbeddingShards *shards, int i, int fd, int64_t offset);

/* The states that an optimizer keeps of a table, in the order of TrsTbeTable.state. */
typedef struct {
  int n;
  PetscBool rowwise[TRS_OPTIMIZER_STATES]; /* one number a row, else one an element */
  PetscBool couples_columns;               /* the optimizer acts on a row as a whole */
  /* then it needs no more of the row than the sum of its squared gradients */
  PetscBool by_squares;
} TrsEmbeddingStates;
TrsEmbeddingStates TrsEmbeddingShardsStates(const TrsEmbeddingShards *shards, int table);

/*
  Find the shard that is number `index` in the table's plan: its index here, or -1 if another rank
  holds it. Not collective.
*/
int TrsEmbeddingShardsFind(const TrsEmbeddingShards *shards, int table, int index);

/*
  Add embedding/<table>/weight and the optimizer's states to a checkpoint's list. Every rank lists
  all tables, with its own rectangles. The data pointers are the shards' own memory. src/RULES.md,
  rule A12, describes the row-wise states of a table that is cut by columns. Not collective.
*/
PetscErrorCode TrsEmbeddingShardsAddState(const TrsEmbeddingShards *shards, TrsState *state);

/* Bytes of weights and of optimizer state on this rank. */
void TrsEmbeddingShardsBytes(const TrsEmbeddingShards *shards, int64_t *weight_bytes, int64_t *state_bytes);

/* Bytes in host memory for fused_uvm and fused_uvm_caching: a part of the bytes above. */
int64_t TrsEmbeddingShardsHostBytes(const TrsEmbeddingShards *shards);
