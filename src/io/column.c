/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/column.h"

#include "io/atomic_file.h"

#include <string.h>
#include <unistd.h>

enum {
  TRS_VALUE_BYTES = 8,
  TRS_FEW_BYTES = 512, /* most columns need at most this many bytes */
  TRS_BLOCK_BYTES = TRS_COLUMN_BLOCK_ROWS * TRS_VALUE_BYTES
};

void TrsSpillClose(TrsSpill *spill)
{
  if (spill->fd >= 0) (void)close(spill->fd);
  spill->fd = -1;
  spill->n_blocks = 0;
}

/* Open the spill file. Its name is removed at once. */
PetscBool TrsSpillOpen(TrsSpill *spill)
{
  TrsAtomicFile file;

  if (spill->fd >= 0) return PETSC_TRUE;
  if (TrsAtomicCreate(spill->beside, &file) == PETSC_SUCCESS) {
    spill->fd = file.fd;
    file.fd = -1;
  } else {
    TrsErrorClear(); /* then rows stay in memory */
  }
  (void)TrsAtomicDiscard(&file);
  return (PetscBool)(spill->fd >= 0);
}

int64_t TrsColumnRowBytes(const TrsColumn *column)
{
  return PetscMax(column->width, 1) * (int64_t)TRS_VALUE_BYTES;
}

int64_t TrsColumnBlockRows(const TrsColumn *column)
{
  return TRS_COLUMN_BLOCK_ROWS / PetscMax(column->width, 1);
}

static int64_t tail_rows(const TrsColumn *column)
{
  return column->rows - column->n_spilled * TrsColumnBlockRows(column);
}

/* If possible, move the first block of the column's tail to the spill file. */
static PetscErrorCode spill_block(TrsColumn *column, TrsSpill *spill)
{
  const int64_t block_bytes = TrsColumnBlockRows(column) * TrsColumnRowBytes(column);
  char *tail = column->tail.data;
  const int64_t left = (tail_rows(column) - TrsColumnBlockRows(column)) * TrsColumnRowBytes(column);

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&column->place, (column->n_spilled + 1) * (int64_t)sizeof(int64_t), PETSC_TRUE));
  if (!TrsSpillOpen(spill) ||
      TrsWriteFully(spill->fd, tail, block_bytes, spill->n_blocks * TRS_BLOCK_BYTES) != 0)
    PetscFunctionReturn(PETSC_SUCCESS);
  ((int64_t *)column->place.data)[column->n_spilled++] = spill->n_blocks++;
  if (left > 0) memmove(tail, tail + block_bytes, (size_t)left);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsColumnAppend(TrsColumn *column, TrsSpill *spill, const void *value)
{
  const int64_t block_rows = TrsColumnBlockRows(column), row_bytes = TrsColumnRowBytes(column);
  int64_t n = tail_rows(column);

  PetscFunctionBegin;
  /*
    A block is moved only when another row follows, so the last row always stays in memory. If a
    move fails, the next attempt is made one block later.
  */
  while (n >= block_rows && n % block_rows == 0) {
    PetscCall(spill_block(column, spill));
    if (tail_rows(column) == n) break;
    n = tail_rows(column);
  }
  PetscCall(TrsBufferReserve(
      &column->tail,
      PetscMax((n + 1) * row_bytes, (n + 1) * row_bytes <= TRS_FEW_BYTES ? TRS_FEW_BYTES : TRS_BLOCK_BYTES),
      PETSC_TRUE));
  memcpy((char *)column->tail.data + n * row_bytes, value, (size_t)row_bytes);
  column->rows++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const void *TrsColumnLast(const TrsColumn *column)
{
  const int64_t n = tail_rows(column);

  return n > 0 ? (const char *)column->tail.data + (n - 1) * TrsColumnRowBytes(column) : NULL;
}

PetscBool TrsColumnDropLast(TrsColumn *column)
{
  if (tail_rows(column) == 0) return PETSC_FALSE;
  column->rows--;
  return PETSC_TRUE;
}

int TrsColumnRead(const TrsColumn *column, const TrsSpill *spill, int64_t first, int64_t n, void *values)
{
  const int64_t block_rows = TrsColumnBlockRows(column), row_bytes = TrsColumnRowBytes(column);
  const int64_t spilled = column->n_spilled * block_rows;

  if (first >= spilled) {
    memcpy(values, (const char *)column->tail.data + (first - spilled) * row_bytes, (size_t)(n * row_bytes));
    return 0;
  }
  return TrsReadFully(spill->fd, values, n * row_bytes,
                      ((const int64_t *)column->place.data)[first / block_rows] * TRS_BLOCK_BYTES +
                          first % block_rows * row_bytes);
}

void TrsColumnClear(TrsColumn *column)
{
  column->rows = column->n_spilled = 0;
}

PetscErrorCode TrsColumnFree(TrsColumn *column)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferFree(&column->place));
  PetscCall(TrsBufferFree(&column->tail));
  column->rows = column->n_spilled = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
