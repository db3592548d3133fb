/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Update: row squares, with -reproducible. The owners of a row's columns update them in place, with
  the sum of squares of the whole row's gradient.

  Row-wise AdaGrad and partial row-wise Adam need only this sum from the whole row (src/RULES.md,
  rule A12). The sum goes over blocks of TRS_SQUARES_COLUMNS columns, in their order. Each rank
  sends its blocks' sums to the ranks that hold the other columns, and each rank adds up all blocks.
  The bits are those of the uncut table, however whole blocks are cut.

  All shards of a table get the same ids in the same order, and have the same rows. So both sides of
  an exchange agree on the place of each row's sum without communication: it is the place of the
  row's first id in the list of ids by row.

  Cost in a group with such a table: ids are listed by row twice, gradients are read twice, and one
  float for each id and block of columns goes to each other column shard. whole_rows.c sends whole
  rows for the other optimizers and cuts.
*/
#include "shard/row_pairs.h"

#include <string.h>

/* The block sums of one shard of the rows: received with a pair, or computed here. */
typedef struct {
  int local;               /* number, in the lookup, of the shard that is updated */
  int64_t column;          /* first column, in the table, of the shard whose squares are summed */
  int64_t blocks;          /* number of blocks in that shard */
  const TrsRowsPair *pair; /* NULL: the sums are computed here */
  const float *sums;       /* [ids of the table, blocks] of this batch */
} TrsSquaresPart;

typedef struct {
  TrsSharding sharding;
  int n_tables; /* tables of the lookup */
  const TrsTbeTable *table;
  TrsRowsTraffic send, recv;
  int n_parts;
  TrsSquaresPart *part; /* [n_parts] by table, then column */
  int64_t *n_ids;       /* [n_tables] ids of this batch */
  float **sums;         /* [n_tables] sums of this rank's blocks; NULL: the table is not cut */
  float **total;        /* [n_tables] sums over all columns; NULL: the table is not cut */
  TrsDeviceBuffer sums_memory, total_memory;
} TrsRowSquares;

static int64_t n_blocks(int64_t columns)
{
  return (columns + TRS_SQUARES_COLUMNS - 1) / TRS_SQUARES_COLUMNS;
}

/* Insert a part, sorted by table and column. */
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
static PetscErrorCode list_parts(TrsRowSquares *r)
{
  PetscBool *cut;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1((size_t)r->n_tables + 1, &cut));
  PetscCall(PetscMalloc1((size_t)(r->n_tables + r->recv.n + 1), &r->part));
  for (int p = 0; p < r->recv.n; p++) {
    const TrsRowsPair *pair = &r->recv.pair[p];

    cut[pair->local] = PETSC_TRUE;
    add_part(
        r, (TrsSquaresPart){
               .local = pair->local, .column = pair->column, .blocks = n_blocks(pair->width), .pair = pair});
  }
  for (int t = 0; t < r->n_tables; t++)
    if (cut[t])
      add_part(r, (TrsSquaresPart){
                      .local = t, .column = r->table[t].col_offset, .blocks = n_blocks(r->table[t].dim)});
  PetscCall(PetscFree(cut));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode setup_row_squares(TrsSharding sharding)
{
  TrsRowSquares *r;

  PetscFunctionBegin;
  PetscCall(PetscNew(&r));
  sharding->update_data = r;
  r->sharding = sharding;
  PetscCall(TrsLookupTables(sharding->lookup, &r->n_tables, &r->table));
  PetscCall(PetscCalloc3((size_t)r->n_tables + 1, &r->n_ids, (size_t)r->n_tables + 1, &r->sums,
                         (size_t)r->n_tables + 1, &r->total));
  PetscCall(TrsRowsTrafficFind(sharding, PETSC_TRUE, &r->send));
  PetscCall(TrsRowsTrafficFind(sharding, PETSC_FALSE, &r->recv));
  PetscCall(list_parts(r));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy_row_squares(TrsSharding sharding)
{
  TrsRowSquares *r = (TrsRowSquares *)sharding->update_data;
  const TrsDeviceOps *device = sharding->context->device;

  PetscFunctionBegin;
  PetscCall(TrsRowsTrafficDestroy(sharding, &r->send));
  PetscCall(TrsRowsTrafficDestroy(sharding, &r->recv));
  PetscCall(TrsDeviceBufferFree(device, &r->sums_memory));
  PetscCall(TrsDeviceBufferFree(device, &r->total_memory));
  PetscCall(PetscFree(r->part));
  PetscCall(PetscFree3(r->n_ids, r->sums, r->total));
  PetscCall(PetscFree(sharding->update_data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make room for the sums of the cut tables. */
static PetscErrorCode reserve_sums(TrsRowSquares *r)
{
  const TrsDeviceOps *device = r->sharding->context->device;
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

/* Count the floats of each rank's messages, and make room for them. */
static PetscErrorCode reserve_messages(TrsRowSquares *r, TrsRowsTraffic *traffic)
{
  int64_t total = 0;

  PetscFunctionBegin;
  for (int q = 0; q < r->sharding->context->groups->world->size; q++) {
    traffic->displs[q] = total;
    for (int p = traffic->first[q]; p < traffic->first[q + 1]; p++)
      total += r->n_ids[traffic->pair[p].local] * n_blocks(traffic->pair[p].width);
    traffic->counts[q] = total - traffic->displs[q];
  }
  PetscCall(TrsDeviceBufferReserveShared(r->sharding->context->device, &traffic->data,
                                         (total + 1) * (int64_t)sizeof(float)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Exchange block sums with the owners of the other columns. */
static PetscErrorCode exchange_sums(TrsRowSquares *r, TrsStream stream)
{
  TrsRequest request = NULL;
  float *at;

  PetscFunctionBegin;
  PetscCall(reserve_messages(r, &r->send));
  PetscCall(reserve_messages(r, &r->recv));
  at = (float *)r->send.data.data;
  for (int p = 0; p < r->send.n; p++) {
    const TrsRowsPair *pair = &r->send.pair[p];
    const int64_t n = r->n_ids[pair->local] * n_blocks(pair->width);

    if (n > 0) memcpy(at, r->sums[pair->local], (size_t)n * sizeof(*at));
    at += n;
  }
  PetscCall(TrsCommAlltoallv(r->sharding->context->groups->world, stream, r->send.data.data, r->send.counts,
                             r->send.displs, r->recv.data.data, r->recv.counts, r->recv.displs, sizeof(float),
                             &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find this batch's sums of all parts. */
static void find_sums(TrsRowSquares *r)
{
  const float *arrived = (const float *)r->recv.data.data;

  for (int p = 0; p < r->recv.n; p++) {
    const TrsRowsPair *pair = &r->recv.pair[p];

    for (int i = 0; i < r->n_parts; i++)
      if (r->part[i].pair == pair) r->part[i].sums = arrived;
    arrived += r->n_ids[pair->local] * n_blocks(pair->width);
  }
  for (int i = 0; i < r->n_parts; i++)
    if (!r->part[i].pair) r->part[i].sums = r->sums[r->part[i].local];
}

/* Add up the blocks of each row in the order of their columns. */
static void add_up(TrsRowSquares *r)
{
  for (int p = 0; p < r->n_parts; p++) {
    const TrsSquaresPart *part = &r->part[p];
    const PetscBool first = (PetscBool)(p == 0 || r->part[p - 1].local != part->local);
    float *total = r->total[part->local];

    for (int64_t i = 0; i < r->n_ids[part->local]; i++) {
      float sum = first ? 0.0f : total[i];
      for (int64_t b = 0; b < part->blocks; b++) sum += part->sums[i * part->blocks + b];
      total[i] = sum;
    }
  }
}

static PetscErrorCode apply_row_squares(TrsSharding sharding, const TrsShardingSlot *slot, TrsStream stream,
                                        TrsMatrix grad, const TrsSparseOptimizerArgs *args)
{
  TrsRowSquares *r = (TrsRowSquares *)sharding->update_data;

  PetscFunctionBegin;
  TrsLookupCountIds(sharding->lookup, &slot->recv, r->n_ids);
  PetscCall(reserve_sums(r));
  PetscCall(TrsLookupRowSquares(sharding->lookup, stream, &slot->recv, (const float *)grad.data, grad.stride,
                                r->sums));
  PetscCall(exchange_sums(r, stream));
  find_sums(r);
  add_up(r);
  PetscCall(TrsLookupBackward(sharding->lookup, stream, &slot->recv, NULL, grad, r->total, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsUpdateOps trs_update_row_squares = {
    .name = "row squares",
    .setup = setup_row_squares,
    .destroy = destroy_row_squares,
    .apply = apply_row_squares,
};
