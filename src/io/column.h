/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Columns of 8-byte numbers that grow row by row for days in bounded memory. A row has one or
  several numbers. Internal to io/. One rank, not collective.

  A column keeps at most one block of rows (64 KiB) in memory, and 8 bytes for each earlier block.
  Full blocks lie in a spill file without a name, so that a killed run leaves nothing behind. While
  the spill file cannot be written (a full disk), rows stay in memory. No row is ever lost.
*/
#pragma once

#include "core/buffer.h"

/* Numbers in a block, and so the rows in a block if a row has one number. */
enum { TRS_COLUMN_BLOCK_ROWS = 8192 };

/*
  The file of full blocks that columns share. It is made with the first block, in a path's folder.
*/
typedef struct {
  const char *beside; /* path in this folder; borrowed */
  int fd;             /* -1 before the file is made */
  int64_t n_blocks;
} TrsSpill;

typedef struct {
  int width;         /* numbers per row, up to TRS_COLUMN_BLOCK_ROWS; 0 counts as 1 */
  int64_t rows;      /* all rows, spilled or not */
  int64_t n_spilled; /* number of blocks in the spill file */
  TrsBuffer place;   /* int64 [n_spilled] position of each block, counted in blocks */
  TrsBuffer tail;    /* rows after the spilled blocks, at least the last row */
} TrsColumn;

/* Make the file if it does not exist yet. Returns true if it exists. */
PetscBool TrsSpillOpen(TrsSpill *spill);
void TrsSpillClose(TrsSpill *spill);

/* Return the bytes of a row, and the number of rows in a block. */
int64_t TrsColumnRowBytes(const TrsColumn *column);
int64_t TrsColumnBlockRows(const TrsColumn *column);

/* Append a row: 8 bytes for each number. Errors: MEMORY. */
PetscErrorCode TrsColumnAppend(TrsColumn *column, TrsSpill *spill, const void *value);

/* Return the numbers of the last row, or NULL if there is no row. */
const void *TrsColumnLast(const TrsColumn *column);

/*
  Remove the last row. Only rows in memory can be removed; after an append the last row always is.
  Returns true if a row was removed.
*/
PetscBool TrsColumnDropLast(TrsColumn *column);

/*
  Read rows first .. first + n - 1, which must lie in one block of TrsColumnBlockRows(). Returns 0
  or an errno.
*/
int TrsColumnRead(const TrsColumn *column, const TrsSpill *spill, int64_t first, int64_t n, void *values);

/* Remove all rows, but keep the memory. */
void TrsColumnClear(TrsColumn *column);
PetscErrorCode TrsColumnFree(TrsColumn *column);
