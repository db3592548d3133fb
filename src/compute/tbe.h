/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Data of the table-batched embedding (TBE) kernels: one rank's shards of several tables, and a
  jagged batch of ids. The CPU and CUDA kernels share these plain structs.

  Source: FBGEMM SplitTableBatchedEmbeddingBagsCodegen
*/
#pragma once

#include "core/dtype.h"
#include "spec/vocabulary.h"

#include <stdint.h>

/*
  The squares of a row are summed in blocks of this many columns, and then the blocks are added. So
  a row that is divided into shards at block boundaries gives the same bits as the whole row.
*/
enum { TRS_SQUARES_COLUMNS = 32 };

typedef enum { TRS_DECAY_NONE, TRS_DECAY_L2, TRS_DECAY_DECOUPLE } TrsWeightDecayMode;

/* A fused optimizer's parameters in one step (src/RULES.md, section 6). */
typedef struct {
  TrsSparseOptimizerKind kind;
  TrsWeightDecayMode weight_decay_mode;
#define TRS_OPTIMIZER_FIELD(word, ...) float word;
  TRS_OPTIMIZER_NUMBERS(TRS_OPTIMIZER_FIELD)
  int64_t step;  /* t, counted from 1 */
  uint64_t seed; /* for stochastic rounding */
} TrsSparseOptimizerArgs;

/*
  One shard of a table. If the table is only looked up, dtype may also be int8, int4 or int2. The
  weights are then rows of TRS_ROWS_TBE (compute/quant.h), and stride is in bytes.
*/
typedef struct {
  /* [rows, stride] elements of dtype, D <= stride; if the bytes of D elements are a multiple
     of 64, each row starts at a multiple of 64 bytes */
  void *weight;
  int64_t rows;
  int64_t stride;              /* elements from one row to the next */
  int32_t dim;                 /* number of columns D of the shard, >= 1 */
  TrsDType dtype;              /* fp32, fp16, bf16 */
  int32_t stochastic_rounding; /* if not 0, stores to fp16 and bf16 round stochastically */
  /* The optimizer's states. Each is NULL, [rows], or [rows, dim] without gaps between rows. */
  float *state[TRS_OPTIMIZER_STATES];
  /* Index in the array of TrsSparseOptimizerArgs that a backward or update receives. */
  int32_t optimizer;
  /* hash of the table's name, from which the random numbers for rounding are computed */
  uint64_t key;
  /* first row and first column of the shard in the whole table */
  int64_t row_offset, col_offset;
  /* number of columns of the whole table; element [r, c] of the shard is element (row_offset + r) *
     table_dim + col_offset + c of the whole table */
  int64_t table_dim;
  /*
    [rows] or NULL. If set, this table has only some rows of a shard: its row r is row row_of[r] of
    the shard.
  */
  const int64_t *row_of;
  /*
    A bit for each row of the shard, which updates set when they change the row (changed_rows.h).
    NULL if changes are not noted. Only the CPU's kernels set these bits.
  */
  uint64_t *changed;
  /*
    The rows of the shard that must be saved before they change (changed_rows.h). NULL if there are
    no snapshots. Only the CPU's kernels save rows.
  */
  struct TrsRowsToSave *to_save;
  /*
    The rows of a cached table may be in lines of a cache (compute/cache.h). `weight` is then host
    memory that the device reads and writes. If an id has a location l >= 0, its row is at lines + l
    * line_bytes instead of in `weight`. Tables with equal `lines` share a cache.
  */
  void *lines;         /* NULL if the table is not cached */
  int64_t line_bytes;  /* bytes of a line of the cache */
  int64_t cache_first; /* linear id of row 0 in the cache */
} TrsTbeTable;

/*
  A feature: the table that its ids look up, how the rows are pooled, and where the pooled vector is
  stored.
*/
typedef struct {
  int32_t table;
  int32_t mean;       /* 0: sum; 1: the sum is divided by the bag's length in this call */
  int64_t out_column; /* first of D columns in `out`, or in `grad` */
} TrsTbeFeature;

typedef struct {
  int n_tables, n_features;
  const TrsTbeTable *table;     /* [n_tables] host memory; the kernels copy what they need */
  const TrsTbeFeature *feature; /* [n_features] the features of a table need not be adjacent */
} TrsTbe;

/*
  The kernels that will use a batch's ids sorted by row: tbe_backward, tbe_backward_rows, or
  tbe_list_rows and tbe_row_gradients.
*/
typedef enum { TRS_TBE_BY_BAG, TRS_TBE_BY_ID, TRS_TBE_LISTS } TrsTbeUse;

/*
  The occurrences of rows in a batch, sorted by row, in memory of their own. tbe_find_occurrences
  makes them before gradients exist, from the ids and, if they are already known, the weights.
*/
typedef struct TrsTbeOccurrencesImpl *TrsTbeOccurrences;

/*
  A jagged batch, feature-major: bag b of feature f has values[offsets[f*B + b] .. offsets[f*B + b +
  1]). Ids are rows of the shard, 0 <= id < rows, or -1. An id of -1 is pruned: it adds nothing, but
  a mean counts it in its divisor. All other ids are treated as -1. They are never used as an
  address, so an unchecked bad id cannot crash the program.
*/
typedef struct {
  int64_t batch;          /* number of bags B of a feature */
  const int64_t *offsets; /* [F*B + 1] */
  const int64_t *values;  /* [N], N = offsets[F*B] */
  const float *weights;   /* [N] or NULL */
  int64_t n_values;       /* N, which the host knows */
  /*
    [N] the cache line that has the row of each id; -1 if the row is in the table, or the id is bad.
    Equal ids of a table have equal locations. Entries for ids of uncached tables are not read. NULL
    if no table is cached.
  */
  const int32_t *locations;
  /*
    [tables] for a backward of column shards. row_squares[t][i] is the sum of squares of a row's
    gradient over all columns of the whole table. i is the index of the row's first id among the
    table's ids sorted by row (TrsRowGroup). If the array or an entry is NULL, the shard has whole
    rows.
  */
  float *const *row_squares;
  /*
    The batch's occurrences, found earlier for the same use. If NULL, the call sorts the ids itself.
    Forwards ignore this field.
  */
  TrsTbeOccurrences occurrences;
  /*
    For tbe_find_occurrences: not 0 if the ids have weights that are not known yet. `weights` is
    then NULL, and set in the call that uses the occurrences. Must be 0 if a feature has `mean`.
  */
  int32_t weights_later;
} TrsTbeInput;
