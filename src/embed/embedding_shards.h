/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The rectangles of tables that this rank holds: allocates and fills weights and optimizer states,
  and lists them for checkpoints. A rank holds a whole table only if the plan says so.
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
    The device reads the rows from host memory: kernels ..._uvm and ..._uvm_caching (quantised rows
    without a cache).
  */
  PetscBool on_host;
  PetscBool state_on_host[TRS_OPTIMIZER_STATES];
  TrsRowCacheWish cache; /* used for fused_uvm_caching */
  TrsTbeTable tbe;       /* the TrsEmbeddingShards owns its memory */
  /* The map from keys to rows, if a placement of the table has one (placement.h create_keys). */
  void *keys;
  /* the mapped file pages with the rows; NULL: the rows are in allocated memory */
  void *map;
  int64_t map_bytes;
  int64_t map_offset; /* the file offset of the mapped rows */
} TrsEmbeddingShard;

typedef struct {
  const TrsDeviceOps *device;
  const TrsTableConfigs *tables;
  const TrsShardingPlan *plan;
  const TrsSparseOptimizers *optimizers; /* NULL: no optimizer */
  /*
    Column shards of a row keep equal row-wise states. Create sets this to false; it may be changed
    after Create.
  */
  PetscBool shared_rowwise;
  uint64_t seed;       /* of rows that placements draw later; may be set after Create */
  PetscBool quantised; /* rows of TRS_ROWS_TBE (compute/quant.h), only for lookups */
  /*
    The placements that lookups of the shards may stack (placement.h). Create sets all existing
    kinds; tests may change this after Create.
  */
  const struct TrsPlacementOps *const *placements;
  int n;
  /* [n] by table, then in the plan's order of shards, empty rectangles included */
  TrsEmbeddingShard *shard;
} TrsEmbeddingShards;

/*
  TrsEmbeddingShardsCreate - Allocate this rank's shards, all zero. TrsEmbeddingShardsFill() or a
  checkpoint sets the weights.

  Rows of fused_uvm and fused_uvm_caching are in host memory that the device reads. So are their
  element-wise states, unless enforce_hbm is set. Row-wise states are always on the device. The
  lookup creates the caches.

  Not collective. Memory is placed near the thread that first writes it.

  In:     tables, plan, optimizers  borrowed
  Errors: MEMORY
*/
PetscErrorCode TrsEmbeddingShardsCreate(const TrsDeviceOps *device, const TrsTableConfigs *tables,
                                        const TrsShardingPlan *plan, int rank,
                                        const TrsSparseOptimizers *optimizers, TrsEmbeddingShards *shards);

/*
  TrsEmbeddingShardsFill - Set the weights' initial values by TrsTableConfig.init. A value depends
  only on (seed, table, row, column). Uniform numbers are made at the speed of memory, normal
  numbers in about 10 ns each on every core.

  Not collective. Must not be called for quantised shards.

  Source: src/RULES.md, rule A21; TorchRec EmbeddingBagConfig.init_fn, get_weight_init_min
*/
PetscErrorCode TrsEmbeddingShardsFill(const TrsEmbeddingShards *shards, uint64_t seed);

/*
  TrsEmbeddingShardsCreateQuantised - Allocate this rank's shards as rows of TRS_ROWS_TBE, all zero
  bytes.

  Such shards are only for lookups: they have no states, and TrsEmbeddingShardsAddState() adds only
  the maps from keys to rows. quant/ fills them. Otherwise as TrsEmbeddingShardsCreate().
*/
PetscErrorCode TrsEmbeddingShardsCreateQuantised(const TrsDeviceOps *device, const TrsTableConfigs *tables,
                                                 const TrsShardingPlan *plan, int rank,
                                                 TrsEmbeddingShards *shards);
PetscErrorCode TrsEmbeddingShardsDestroy(TrsEmbeddingShards *shards);

/*
  TrsEmbeddingShardsMap - Map the rows of quantised shard i from a file instead of memory.

  The rows are read-only until TrsEmbeddingShardsUnseal(). Pages are loaded when they are read, and
  processes share them. The file's contents must not change; the file may be closed, and removed
  from its folder. Not collective. For devices with host memory.

  In:     fd, offset  an open file, and the number of bytes before the shard's first row. The rows
                      must have no gaps, and their elements must be aligned
  Errors: IO
*/
PetscErrorCode TrsEmbeddingShardsMap(const TrsEmbeddingShards *shards, int i, int fd, int64_t offset);

/*
  Make the rows of mapped shards writable. The file stays as it is, because a page that is written
  to becomes memory of this process. Not collective. Errors: MEMORY
*/
PetscErrorCode TrsEmbeddingShardsUnseal(const TrsEmbeddingShards *shards);

/*
  TrsEmbeddingShardsCopy - Make quantised shards equal to others: their rows, and the maps from keys
    to rows for lookups. Rows that are mapped are mapped again.

  Not collective. For devices with host memory.

  In:     fd  the open file of the mapped rows, which must not have been written to; -1 if no row is
              mapped
          to  of TrsEmbeddingShardsCreateQuantised() with the same tables and plan
  Errors: MEMORY, IO
*/
PetscErrorCode TrsEmbeddingShardsCopy(const TrsEmbeddingShards *shards, int fd, const TrsEmbeddingShards *to);

/* The states that an optimizer keeps for a table, in the order of TrsTbeTable.state. */
typedef struct {
  int n;
  PetscBool rowwise[TRS_OPTIMIZER_STATES]; /* one number per row, else one per element */
  PetscBool couples_columns;               /* the optimizer acts on a row as a whole */
  /* if couples_columns: the sum of squared gradients is all that it needs from the whole row */
  PetscBool by_squares;
} TrsEmbeddingStates;
TrsEmbeddingStates TrsEmbeddingShardsStates(const TrsEmbeddingShards *shards, int table);

/*
  Find the shard with number `index` in the table's plan. Returns its index here, or -1 if another
  rank holds it. Not collective.
*/
int TrsEmbeddingShardsFind(const TrsEmbeddingShards *shards, int table, int index);

/*
  Add embedding/<table>/weight and the optimizer's states to a checkpoint's list. Every rank lists
  all tables, with its own rectangles. The data pointers point to the shards' memory. src/RULES.md,
  rule A12, describes the row-wise states of a table that is cut by columns. Not collective.
*/
PetscErrorCode TrsEmbeddingShardsAddState(const TrsEmbeddingShards *shards, TrsState *state);

/*
  TrsEmbeddingShardsAddRows - Add a tensor of a table's rows to a checkpoint's list, without parts.

  Not collective. cols 0: one number per row, in one dimension. A table that grows has only its rows
  in use in a file.
*/
PetscErrorCode TrsEmbeddingShardsAddRows(const TrsEmbeddingShards *shards, int table, const char *path,
                                         TrsDType dtype, int64_t cols, TrsState *state,
                                         TrsStateTensor **tensor);

/*
  Add shard i's rectangle of such a tensor: all rows of the shard, in the columns that part names.
  part->data is the first row's memory. Not collective.
*/
PetscErrorCode TrsEmbeddingShardAddPart(const TrsEmbeddingShards *shards, int i, const TrsStatePart *part,
                                        TrsStateTensor *tensor);

/* Bytes of weights and optimizer states on this rank. */
void TrsEmbeddingShardsBytes(const TrsEmbeddingShards *shards, int64_t *weight_bytes, int64_t *state_bytes);

/* Bytes in host memory for fused_uvm and fused_uvm_caching; part of the bytes above. */
int64_t TrsEmbeddingShardsHostBytes(const TrsEmbeddingShards *shards);
