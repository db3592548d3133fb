/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantises the rows of a checkpoint piece by piece while they are read. */
#include "compute/quant.h"
#include "quant/quantised_tables.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Rows of a shard from `row` on, which receive the rows of a part. */
typedef struct {
  int shard;
  int64_t row;
} TrsQuantPart;

/* The tensor of one table. */
typedef struct {
  TrsQuantReader reader;
  const TrsTableConfig *config;
  const TrsStoredTable *stored;
  TrsQuantPart *part; /* [n_parts of the tensor] */
  /* of a delta: the numbers of n_changed rows, int64, and these rows in the shards' type */
  int64_t n_changed;
  TrsBuffer changed, changed_rows;
} TrsQuantTable;

struct TrsQuantReaderImpl {
  const char *path;
  const TrsEmbeddingShards *shards;
  const TrsStoredTable *stored;
  const TrsComputeOps *host; /* conversions happen in host memory */
  TrsQuantTable *table;      /* [tables->n] */
  PetscBool maps, checks;    /* maps: map rows if possible; checks: check mapped rows */
  /* Pieces of rows: floats, whole quantised rows, and a shard's columns of quantised rows. */
  TrsBuffer numbers, rows, slice;
  TrsBuffer rounded; /* numbers in the checkpoint's type */
};

/* The largest magnitude in rows of a type. Scale, bias and halves are fp16. */
static float largest_of(TrsDType dtype)
{
  if (dtype == TRS_FP32) return FLT_MAX;
  return dtype == TRS_BF16 ? 0x1.fep127F : 65504.0F;
}

/*
  Check that the type can hold all numbers. The message gives the row's number in the whole table.
*/
static PetscErrorCode check_numbers(const TrsQuantTable *table, int64_t first_row, int64_t n, const float *x)
{
  const int64_t dim = table->config->embedding_dim;
  const float largest = largest_of(table->config->data_type);

  PetscFunctionBegin;
  for (int64_t r = 0; r < n; r++) {
    int bad = 0;
    for (int64_t d = 0; d < dim; d++) bad |= !(fabsf(x[r * dim + d]) <= largest);
    if (!bad) continue;
    for (int64_t d = 0; d < dim; d++) {
      const double value = (double)x[r * dim + d];
      PetscCheck(isfinite(value), PETSC_COMM_SELF, TRS_ERR_NOT_FINITE,
                 "%s: /embedding/%s/weight has %g in row %" PRId64 ", column %" PRId64, table->reader->path,
                 table->config->name, value, first_row + r, d);
      PetscCheck(fabs(value) <= (double)largest, PETSC_COMM_SELF, TRS_ERR_DATA,
                 "%s: /embedding/%s/weight has %g in row %" PRId64 ", column %" PRId64
                 ", and %s rows hold magnitudes up to %g",
                 table->reader->path, table->config->name, value, first_row + r, d,
                 TrsDTypeName(table->config->data_type), (double)largest);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check the parameters of rows that are already quantised. A NaN in scale or bias would go
  unnoticed, because a ReLU hides it.
*/
static PetscErrorCode check_parameters(const TrsQuantTable *table, int64_t first_row, int64_t n,
                                       const uint8_t *rows)
{
  enum { TRS_HALF_EXPONENT = 0x7c }; /* in the high byte; all bits set: Inf or NaN */

  PetscFunctionBegin;
  for (int64_t r = 0; r < n; r++) {
    const uint8_t *row = rows + r * table->stored->cols;
    PetscCheck((row[1] & TRS_HALF_EXPONENT) != TRS_HALF_EXPONENT &&
                   (row[3] & TRS_HALF_EXPONENT) != TRS_HALF_EXPONENT,
               PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /embedding/%s/weight_quantised, row %" PRId64
               ": its scale and bias are no numbers: damaged",
               table->reader->path, table->config->name, first_row + r);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Quantise whole rows of numbers in the file's type. The result is borrowed until the next call. */
static PetscErrorCode quantise(const TrsQuantTable *table, TrsDType dtype, int64_t first_row, int64_t n,
                               const void *numbers, const void **rows)
{
  TrsQuantReader r = table->reader;
  const int dim = table->config->embedding_dim;
  const TrsDType to = table->config->data_type;
  const float *x = numbers;

  PetscFunctionBegin;
  if (dtype != TRS_FP32) {
    PetscCall(TrsBufferReserve(&r->numbers, n * dim * (int64_t)sizeof(float), PETSC_FALSE));
    PetscCall(r->host->convert(NULL, n * dim, dtype, numbers, TRS_FP32, r->numbers.data));
    x = r->numbers.data;
  }
  PetscCall(check_numbers(table, first_row, n, x));
  PetscCall(TrsBufferReserve(&r->rows, n * TrsQuantRowBytes(to, TRS_ROWS_TBE, dim), PETSC_FALSE));
  PetscCall(TrsQuantiseRows(to, TRS_ROWS_TBE, n, dim, x, dim, r->rows.data));
  *rows = r->rows.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* TrsStateMap: map the rows of a shard if the file has them in the shard's format. */
static PetscErrorCode map_rows(void *context, int part, TrsDType dtype, int fd, int64_t offset,
                               PetscBool *to_take)
{
  const TrsQuantTable *table = context;
  TrsQuantReader r = table->reader;
  const TrsTbeTable *shard = &r->shards->shard[table->part[part].shard].tbe;
  const PetscBool same = (PetscBool)(table->stored->is_quantised || dtype == shard->dtype);

  PetscFunctionBegin;
  if (!r->maps || !same || offset % TrsDTypeBytes(dtype) != 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsEmbeddingShardsMap(r->shards, table->part[part].shard, fd, offset));
  *to_take = r->checks;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  TrsStateTake: copy whole rows of one of this rank's shards to the shard's memory. Mapped rows are
  only checked.
*/
static PetscErrorCode take_rows(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                const void *rows)
{
  const TrsQuantTable *table = context;
  TrsQuantReader r = table->reader;
  const TrsTbeTable *shard = &r->shards->shard[table->part[part].shard].tbe;
  const int64_t row_bytes = TrsQuantRowBytes(shard->dtype, TRS_ROWS_TBE, shard->dim);

  PetscFunctionBegin;
  first += table->part[part].row;
  if (table->stored->is_quantised)
    PetscCall(check_parameters(table, shard->row_offset + first, n, rows));
  else
    PetscCall(quantise(table, dtype, shard->row_offset + first, n, rows, &rows));
  if (r->shards->shard[table->part[part].shard].map) PetscFunctionReturn(PETSC_SUCCESS);
  if (shard->dim < table->config->embedding_dim) {
    PetscCall(TrsBufferReserve(&r->slice, n * row_bytes, PETSC_FALSE));
    PetscCall(TrsQuantSliceRows(shard->dtype, table->config->embedding_dim, (int)shard->col_offset,
                                shard->dim, n, rows, r->slice.data));
    rows = r->slice.data;
  }
  PetscCall(r->shards->device->copy((char *)shard->weight + first * row_bytes, rows, n * row_bytes, NULL));
  PetscCall(r->shards->device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Round numbers to the type that the checkpoint has. They are borrowed until the next call. */
static PetscErrorCode round_numbers(const TrsQuantTable *table, TrsDType *dtype, int64_t n,
                                    const void **numbers)
{
  const TrsDType to = table->stored->dtype;
  TrsQuantReader r = table->reader;
  const void *from = *numbers;

  PetscFunctionBegin;
  if (*dtype == to) PetscFunctionReturn(PETSC_SUCCESS);
  if (*dtype != TRS_FP32) {
    PetscCall(TrsBufferReserve(&r->numbers, n * (int64_t)sizeof(float), PETSC_FALSE));
    PetscCall(r->host->convert(NULL, n, *dtype, from, TRS_FP32, r->numbers.data));
    from = r->numbers.data;
  }
  if (to != TRS_FP32) {
    PetscCall(TrsBufferReserve(&r->rounded, n * TrsDTypeBytes(to), PETSC_FALSE));
    PetscCall(r->host->convert(NULL, n, TRS_FP32, from, to, r->rounded.data));
    from = r->rounded.data;
  }
  *dtype = to;
  *numbers = from;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* TrsStateTake: keep changed rows of a table until TrsQuantReaderWrite(). */
static PetscErrorCode keep_rows(void *context, int part, TrsDType dtype, int64_t first, int64_t n,
                                const void *rows)
{
  TrsQuantTable *table = context;
  const int dim = table->config->embedding_dim;
  const int64_t row_bytes = TrsQuantRowBytes(table->config->data_type, TRS_ROWS_TBE, dim);

  PetscFunctionBegin;
  (void)part;
  PetscCall(round_numbers(table, &dtype, n * dim, &rows));
  PetscCall(quantise(table, dtype, first, n, rows, &rows));
  PetscCall(TrsBufferReserve(&table->changed, (table->n_changed + n) * (int64_t)sizeof(int64_t), PETSC_TRUE));
  PetscCall(TrsBufferReserve(&table->changed_rows, (table->n_changed + n) * row_bytes, PETSC_TRUE));
  memcpy((char *)table->changed_rows.data + table->n_changed * row_bytes, rows, (size_t)(n * row_bytes));
  for (int64_t i = 0; i < n; i++) ((int64_t *)table->changed.data)[table->n_changed++] = first + i;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsQuantReaderCreate(const char *path, const TrsEmbeddingShards *shards,
                                    const TrsStoredTable *stored, TrsQuantReader *reader)
{
  TrsQuantReader r;

  PetscFunctionBegin;
  PetscCall(PetscNew(&r));
  r->path = path;
  r->shards = shards;
  r->stored = stored;
  PetscCall(TrsComputeFind("cpu", &r->host));
  PetscCall(PetscCalloc1((size_t)shards->tables->n, &r->table));
  for (int t = 0; t < shards->tables->n; t++)
    r->table[t] = (TrsQuantTable){.reader = r, .config = &shards->tables->table[t], .stored = &stored[t]};
  *reader = r;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsQuantReaderMap(TrsQuantReader reader, PetscBool check)
{
  reader->maps = PETSC_TRUE;
  reader->checks = check;
}

PetscErrorCode TrsQuantReaderAddState(TrsQuantReader r, TrsState *state)
{
  PetscFunctionBegin;
  for (int t = 0; t < r->shards->tables->n; t++) {
    TrsQuantTable *table = &r->table[t];
    const TrsStoredTable *stored = table->stored;
    char path[PETSC_MAX_PATH_LEN];
    TrsStateTensor *tensor;

    PetscCall(PetscSNPrintf(path, sizeof(path), "embedding/%s/weight%s", table->config->name,
                            stored->is_quantised ? "_quantised" : ""));
    PetscCall(TrsEmbeddingShardsAddRows(r->shards, t, path, stored->is_quantised ? TRS_UINT8 : TRS_FP32,
                                        stored->cols, state, &tensor));
    tensor->take = take_rows;
    if (!tensor->count) tensor->map = map_rows;
    tensor->take_context = table;
    for (int i = 0; i < r->shards->n; i++) {
      const TrsStatePart part = {.cols = stored->cols, .stride = stored->cols};
      const int first = tensor->n_parts;

      if (r->shards->shard[i].table != t || r->shards->shard[i].tbe.rows == 0) continue;
      PetscCall(TrsEmbeddingShardAddPart(r->shards, i, &part, tensor));
      PetscCall(PetscRealloc((size_t)tensor->n_parts * sizeof(*table->part), &table->part));
      for (int k = first; k < tensor->n_parts; k++)
        table->part[k] = (TrsQuantPart){i, (k - first) * TrsTableRowUnit(table->config)};
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsQuantReaderAddDelta(TrsQuantReader r, TrsState *state)
{
  PetscFunctionBegin;
  for (int t = 0; t < r->shards->tables->n; t++) {
    TrsQuantTable *table = &r->table[t];
    const int64_t cols = table->config->embedding_dim, rows = table->config->num_embeddings;
    char path[PETSC_MAX_PATH_LEN];
    TrsStateTensor *tensor;

    PetscCall(PetscSNPrintf(path, sizeof(path), "embedding/%s/weight", table->config->name));
    PetscCall(TrsStateAdd(state, path, TRS_FP32, 2, rows, cols, &tensor));
    PetscCall(TrsStateAddPart(tensor, 0, 0, rows, cols, NULL, cols));
    tensor->rows_of = table->config->name;
    tensor->take = keep_rows;
    tensor->take_context = table;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsQuantReaderWrite(TrsQuantReader r, const TrsEmbeddingShards *shards)
{
  for (int i = 0; i < shards->n; i++) {
    const TrsTbeTable *shard = &shards->shard[i].tbe;
    const TrsQuantTable *table = &r->table[shards->shard[i].table];
    const int64_t *row = (const int64_t *)table->changed.data;
    const int64_t from_bytes = TrsQuantRowBytes(shard->dtype, TRS_ROWS_TBE, shard->dim);
    /* a mapped row of numbers has no padding */
    const int64_t bytes = shard->stride * (TrsQuantIsPacked(shard->dtype) ? 1 : TrsDTypeBytes(shard->dtype));

    for (int64_t k = 0; k < table->n_changed; k++)
      memcpy((char *)shard->weight + row[k] * bytes, (const char *)table->changed_rows.data + k * from_bytes,
             (size_t)PetscMin(bytes, from_bytes));
  }
}

PetscErrorCode TrsQuantReaderDestroy(TrsQuantReader *reader)
{
  TrsQuantReader r = *reader;

  PetscFunctionBegin;
  if (!r) PetscFunctionReturn(PETSC_SUCCESS);
  for (int t = 0; t < r->shards->tables->n; t++) {
    PetscCall(PetscFree(r->table[t].part));
    PetscCall(TrsBufferFree(&r->table[t].changed));
    PetscCall(TrsBufferFree(&r->table[t].changed_rows));
  }
  PetscCall(PetscFree(r->table));
  PetscCall(TrsBufferFree(&r->numbers));
  PetscCall(TrsBufferFree(&r->rows));
  PetscCall(TrsBufferFree(&r->slice));
  PetscCall(TrsBufferFree(&r->rounded));
  PetscCall(PetscFree(*reader));
  PetscFunctionReturn(PETSC_SUCCESS);
}
