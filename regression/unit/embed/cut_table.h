/* SPDX-License-Identifier: BSD-3-Clause */
/* A table that is cut among all ranks, by rows or by columns, and its shards on this rank. */
#pragma once

#include "embed/embedding_shards.h"
#include "trs_test.h"

#include <string.h>

typedef struct {
  TrsTableConfig config;
  TrsTableConfigs tables;
  TrsShard shard[8]; /* one of each rank */
  TrsTablePlan table;
  TrsShardingPlan plan;
  TrsSparseOptimizers optimizers;
  TrsSparseOptimizerArgs args;
  TrsEmbeddingShards shards;
} CutTable;

/* Create the shards. The table stays where it is until TrsEmbeddingShardsDestroy(). */
static void create_cut_table(CutTable *t, int64_t rows, int dim, PetscBool by_rows,
                             const TrsSparseOptimizerArgs *args)
{
  static char name[] = "t";
  static char *features[] = {name};
  const int W = trs_size();
  const TrsDeviceOps *device;

  memset(t, 0, sizeof(*t));
  assert_petsc_ok(TrsDeviceFind("cpu", &device));
  t->config = (TrsTableConfig){
      .name = name, .num_embeddings = rows, .embedding_dim = dim, .n_features = 1, .features = features};
  t->tables = (TrsTableConfigs){.n = 1, .table = &t->config};
  for (int r = 0; r < W; r++) {
    const int64_t n = by_rows ? rows : dim, begin = n * r / W, end = n * (r + 1) / W;

    t->shard[r] = by_rows ? (TrsShard){.rank = r, .row_offset = begin, .rows = end - begin, .cols = dim}
                          : (TrsShard){.rank = r, .col_offset = begin, .rows = rows, .cols = end - begin};
  }
  t->table = (TrsTablePlan){.name = name,
                            .sharding_type = by_rows ? TRS_SHARDING_ROW_WISE : TRS_SHARDING_COLUMN_WISE,
                            .n_shards = W,
                            .shard = t->shard};
  t->plan = (TrsShardingPlan){.world_size = W, .n_tables = 1, .table = &t->table};
  t->args = *args;
  t->optimizers = (TrsSparseOptimizers){.n = 1, .args = &t->args};
  assert_petsc_ok(
      TrsEmbeddingShardsCreate(device, &t->tables, &t->plan, trs_rank(), &t->optimizers, &t->shards));
}
