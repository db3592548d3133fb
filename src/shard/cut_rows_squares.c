/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The update "cut squares". The owners of a row's columns update their columns in place. For this
  they need the sum of squares of the whole row's gradient. Row-wise AdaGrad and partial row-wise
  Adam need nothing else from the other columns.

  The sum is made over blocks of TRS_SQUARES_COLUMNS columns, in their order. Each rank sends the
  sums of its blocks to the ranks that hold the other columns, and each rank adds up all blocks. The
  results are equal bit for bit to those of the uncut table, wherever whole blocks are cut.

  All shards of a table have the same rows. A row's sum is stored at the position of the row's first
  id in the list of ids sorted by row.

  Cost in a group with such a table: ids are listed by row twice, and gradients are read twice. One
  float for each id and block of columns is sent to each other column shard.
*/
#include "shard/cut_rows.h"

#include <string.h>

/*
  The block sums of one column shard of the rows. They are received from a pair, or computed on this
  rank.
*/
typedef struct {
  int local;               /* index in the lookup of the shard that is updated */
  int64_t column;          /* first column in the table of the shard whose squares are summed */
  int64_t blocks;          /* number of blocks in the shard whose squares are summed */
  const TrsRowsPair *pair; /* the pair that sends the sums; NULL: this rank computes them */
} TrsSquaresPart;

typedef struct {
  TrsCutRows rows;
  int n_parts;
  TrsSquaresPart *part; /* [n_parts] sorted by table, then column */
  int64_t *n_ids;       /* [n_tables] number of ids in this batch */
  float **sums;         /* [n_tables] sums of each block on this rank; NULL: the table is not cut */
  float **total;        /* [n_tables] sums over all columns; NULL: the table is not cut */
  TrsDeviceBuffer sums_memory, total_memory;
} TrsRowSquares;

static int64_t n_blocks(int64_t columns)
{
  return (columns + TRS_SQUARES_COLUMNS - 1) / TRS_SQUARES_COLUMNS;
}

/* Insert a part into the list, which is sorted by table and column. */
static void add_part(TrsRowSquares *r, TrsSquaresPart part)
{
  int at = r->n_parts++;

  for (; at > 0 && (r->part[at - 1].local > part.local ||
                    (r->part[at - 1].local == part.local && r->part[at - 1].column > part.column));
       at--)
    r->part[at] = r->part[at - 1];
  r->part[at] = part;
}

/* List the parts of all cut tables. */
static void list_parts(TrsRowSquares *r)
{
  for (int p = 0; p < r->rows.recv.n; p++) {
    const TrsRowsPair *pair = &r->rows.recv.pair[p];

    add_part(
        r, (TrsSquaresPart){
               .local = pair->local, .column = pair->column, .blocks = n_blocks(pair->width), .pair = pair});
  }
  for (int t = 0; t < r->rows.n_tables; t++)
    if (r->rows.cut[t])
      add_part(r, (TrsSquaresPart){.local = t,
                                   .column = r->rows.table[t].col_offset,
                                   .blocks = n_blocks(r->rows.table[t].dim)});
}

static PetscErrorCode setup_cut_squares(TrsSharding sharding)
{
  TrsRowSquares *r;
  size_t n;

  PetscFunctionBegin;
  PetscCall(PetscNew(&r));
  sharding->update_data = r;
  PetscCall(TrsCutRowsSetUp(sharding, &r->rows));
  n = (size_t)r->rows.n_tables + 1;
  PetscCall(PetscCalloc3(n, &r->n_ids, n, &r->sums, n, &r->total));
  PetscCall(PetscMalloc1(n + (size_t)r->rows.recv.n, &r->part));
  list_parts(r);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_cut_squares(TrsSharding sharding)
{
  TrsRowSquares *r = (TrsRowSquares *)sharding->update_data;
  const TrsDeviceOps *device = sharding->context->device;

  PetscFunctionBegin;
  PetscCall(TrsCutRowsDestroy(&r->rows));
  PetscCall(TrsDeviceBufferFree(device, &r->sums_memory));
  PetscCall(TrsDeviceBufferFree(device, &r->total_memory));
  PetscCall(PetscFree(r->part));
  PetscCall(PetscFree3(r->n_ids, r->sums, r->total));
  PetscCall(PetscFree(sharding->update_data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Allocate memory for the sums of the cut tables. */
static PetscErrorCode reserve_sums(TrsRowSquares *r)
{
  const TrsDeviceOps *device = r->rows.sharding->context->device;
  int64_t sums = 0, total = 0;

  PetscFunctionBegin;
  for (int pass = 0; pass < 2; pass++) { /* the first pass counts, the second assigns memory */
    sums = total = 0;
    for (int p = 0; p < r->n_parts; p++) {
      const TrsSquaresPart *part = &r->part[p];
      const int t = part->local;

      if (part->pair) continue;
      if (pass == 1) {
        r->sums[t] = (float *)r->sums_memory.data + sums;
        r->total[t] = (float *)r->total_memory.data + total;
      }
      sums += r->n_ids[t] * part->blocks;
      total += r->n_ids[t];
    }
    if (pass == 1) break;
    PetscCall(TrsDeviceBufferReserve(device, &r->sums_memory, (sums + 1) * (int64_t)sizeof(float)));
    PetscCall(TrsDeviceBufferReserve(device, &r->total_memory, (total + 1) * (int64_t)sizeof(float)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of floats that a pair sends. */
static int64_t floats_of(const void *update, const TrsRowsPair *pair)
{
  return ((const TrsRowSquares *)update)->n_ids[pair->local] * n_blocks(pair->width);
}

/* Exchange block sums with the owners of the other columns. */
static PetscErrorCode exchange_sums(TrsRowSquares *r, TrsStream stream)
{
  const TrsRowsTraffic *send = &r->rows.send;

  PetscFunctionBegin;
  PetscCall(TrsCutRowsReserve(&r->rows, sizeof(float), floats_of, r));
  for (int p = 0; p < send->n; p++)
    memcpy((float *)send->data.data + send->pair[p].at, r->sums[send->pair[p].local],
           (size_t)floats_of(r, &send->pair[p]) * sizeof(float));
  PetscCall(TrsCutRowsExchange(&r->rows, stream, sizeof(float)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add up the blocks of each row in the order of their columns. */
static void add_up(TrsRowSquares *r)
{
  for (int p = 0; p < r->n_parts; p++) {
    const TrsSquaresPart *part = &r->part[p];
    const PetscBool first = (PetscBool)(p == 0 || r->part[p - 1].local != part->local);
    const float *sums = part->pair ? (const float *)r->rows.recv.data.data + part->pair->at
                                   : r->sums[part->local];
    float *total = r->total[part->local];

    for (int64_t i = 0; i < r->n_ids[part->local]; i++) {
      float sum = first ? 0.0f : total[i];
      for (int64_t b = 0; b < part->blocks; b++) sum += sums[i * part->blocks + b];
      total[i] = sum;
    }
  }
}

static PetscErrorCode apply_cut_squares(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                        TrsMatrix grad, const TrsSparseOptimizerArgs *args)
{
  TrsRowSquares *r = (TrsRowSquares *)sharding->update_data;

  PetscFunctionBegin;
  TrsLookupCountIds(sharding->lookup, &slot->recv, r->n_ids);
  PetscCall(reserve_sums(r));
  PetscCall(TrsLookupRowSquares(sharding->lookup, stream, &slot->recv, (const float *)grad.data, grad.stride,
                                r->sums));
  PetscCall(exchange_sums(r, stream));
  add_up(r);
  PetscCall(TrsLookupBackward(sharding->lookup, stream, &slot->recv, NULL, grad, r->total, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsUpdateOps trs_update_cut_squares = {
    .name = "cut squares",
    .setup = setup_cut_squares,
    .destroy = destroy_cut_squares,
    .apply = apply_cut_squares,
};
