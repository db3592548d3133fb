/* SPDX-License-Identifier: BSD-3-Clause */
/*
  What table-batched embedding (TBE) kernels work on: the shards one rank holds of several tables, and a jagged batch of ids.
  Plain data shared by the CPU and CUDA kernels (FBGEMM: SplitTableBatchedEmbeddingBagsCodegen).
*/
#pragma once

#include "core/dtype.h"

#include <stdint.h>

typedef enum {
  TRS_OPTIM_NONE,
  TRS_OPTIM_SGD,
  TRS_OPTIM_ADAGRAD,
  TRS_OPTIM_ROWWISE_ADAGRAD,
  TRS_OPTIM_ADAM,
  TRS_OPTIM_PARTIAL_ROWWISE_ADAM,
  TRS_OPTIM_LAMB,
  TRS_OPTIM_PARTIAL_ROWWISE_LAMB,
  TRS_OPTIM_LARS_SGD,
  TRS_OPTIM_LION,
  TRS_OPTIM_SHAMPOO, /* a name the options know, and refuse */
  TRS_N_OPTIMS
} TrsSparseOptimizerKind;

typedef enum { TRS_DECAY_NONE, TRS_DECAY_L2, TRS_DECAY_DECOUPLE } TrsWeightDecayMode;

/* A fused optimizer's numbers in one step (src/RULES.md, section 6). */
typedef struct {
  TrsSparseOptimizerKind kind;
  TrsWeightDecayMode weight_decay_mode;
  float learning_rate, eps, beta1, beta2, weight_decay, eta, momentum;
  int64_t step;  /* t, counted from 1 */
  uint64_t seed; /* of stochastic rounding */
} TrsSparseOptimizerArgs;

#define TRS_TBE_STATES 2 /* tensors that an optimizer keeps, at most */

/*
  One shard of a table. For lookups alone the weights may be int8, int4 or int2 rows of TRS_ROWS_TBE (compute/quant.h): dtype says which, and
  stride is in bytes then.
*/
typedef struct {
  void *
      weight; /* [rows, stride] elements of dtype, D <= stride; rows start 64-byte aligned if D*bytes allows */
  int64_t rows;
  int64_t stride;               /* elements from row to row */
  int32_t dim;                  /* columns D of the shard, >= 1 */
  TrsDType dtype;               /* fp32, fp16, bf16 */
  int32_t stochastic_rounding;  /* of fp16 and bf16 stores */
  float *state[TRS_TBE_STATES]; /* the optimizer's: NULL, [rows], or [rows, dim] dense (stride dim) */
  int32_t
      optimizer; /* which of the TrsSparseOptimizerArgs given to a backward or update; 0: the first or only */
  uint64_t key;  /* hash of the table's name, keys the rounding */
  int64_t row_offset, col_offset; /* the shard's place in the whole table, */
  int64_t table_dim; /* and the whole table's width: element (row_offset + r) * table_dim + col_offset + c */
  const int64_t *row_of; /* [rows] or NULL: rows picked from a shard, row r being its row row_of[r] */
  /*
    Rows of a cached table (compute/cache.h; weight is host memory that the device reads and writes) may be in lines of a cache: row r of an id whose
    location l >= 0 is at lines + l * line_bytes, not at weight. Several tables share a cache: those of equal `lines`.
  */
  void *lines;         /* NULL: not cached */
  int64_t line_bytes;  /* the cache's */
  int64_t cache_first; /* linear id of row 0 in the cache */
} TrsTbeTable;

/* One feature: which table its ids address, how they are pooled, where its pooled vector goes. */
typedef struct {
  int32_t table;
  int32_t mean;       /* 0: sum; 1: divide by the bag's length in this call */
  int64_t out_column; /* first of D columns in out, or in grad */
} TrsTbeFeature;

typedef struct {
  int n_tables, n_features;
  const TrsTbeTable *table;     /* [n_tables] host memory; the kernels copy what they need */
  const TrsTbeFeature *feature; /* [n_features], features of one table need not be adjacent */
} TrsTbe;

/*
  A jagged batch, feature-major: bag b of feature f holds values[offsets[f*B + b] .. offsets[f*B + b + 1]).
  Ids are rows of the shard, 0 <= id < rows, or -1 (pruned: adds nothing, counts in mean's divisor); other ids are never dereferenced
  (treated as -1), so that an unchecked bad id cannot crash.
*/
typedef struct {
  int64_t batch;          /* B bags a feature */
  const int64_t *offsets; /* [F*B + 1] */
  const int64_t *values;  /* [N], N = offsets[F*B] */
  const float *weights;   /* [N] or NULL */
  int64_t n_values;       /* N, known on the host */
  /*
    [N] where the row of a cached table's id is: its line, or -1: in the table (also of ids that are no rows). Equal for equal ids of a table. Ids
    of tables that are not cached have none: not read. NULL: no table is cached.
  */
  const int32_t *locations;
} TrsTbeInput;
