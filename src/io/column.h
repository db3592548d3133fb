/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Columns of 8-byte numbers that grow row by row, for days, in bounded memory. A row has one or
  several numbers. Internal to io/. Called on one rank, not collective.

  A column keeps at most one block of rows (64 KiB) in memory, and 8 bytes for each earlier block.
  Full blocks are written to a spill file without a name, so that a killed run leaves no file
  behind. If the spill file cannot be written, for example because the disk is full, rows stay in
  memory. No row is ever lost.
*/
#pragma once

#include "core/buffer.h"

/*
  Number of values in a block. If a row has one value, this is also the number of rows in a block.
*/
enum { TRS_COLUMN_BLOCK_ROWS = 8192 };

/*
  The spill file for full blocks, which several columns share. It is made when the first block is
  written, in the folder of a given path.
*/
typedef struct {
  const char *beside; /* a path in this folder; borrowed */
  int fd;             /* descriptor, or -1 before the file is made */
  int64_t n_blocks;
} TrsSpill;

typedef struct {
  int width;         /* numbers per row, at most TRS_COLUMN_BLOCK_ROWS; 0 counts as 1 */
  int64_t rows;      /* number of all rows, in memory and in the spill file */
  int64_t n_spilled; /* number of blocks in the spill file */
  /* int64 [n_spilled] position of each block in the spill file, counted in blocks */
  TrsBuffer place;
  TrsBuffer tail; /* the rows after the spilled blocks; at least the last row is here */
} TrsColumn;

/* Make the spill file if it does not exist yet. Returns true if it exists now. */
PetscBool TrsSpillOpen(TrsSpill *spill);
void TrsSpillClose(TrsSpill *spill);

/* Return the bytes of a row. TrsColumnBlockRows(): the number of rows in a block. */
int64_t TrsColumnRowBytes(const TrsColumn *column);
int64_t TrsColumnBlockRows(const TrsColumn *column);

/* Append a row with 8 bytes for each number. Errors: MEMORY. */
PetscErrorCode TrsColumnAppend(TrsColumn *column, TrsSpill *spill, const void *value);

/* Return the numbers of the last row, or NULL if there is no row. */
const void *TrsColumnLast(const TrsColumn *column);

/*
  Remove the last row. Only a row in memory can be removed. The last row is always in memory after
  an append. Returns true if a row was removed.
*/
PetscBool TrsColumnDropLast(TrsColumn *column);

/*
  Read rows first .. first + n - 1, which must all lie in the same block of TrsColumnBlockRows()
  rows. Returns 0 or an errno.
*/
int TrsColumnRead(const TrsColumn *column, const TrsSpill *spill, int64_t first, int64_t n, void *values);

/* Remove all rows, but keep the memory for later rows. */
void TrsColumnClear(TrsColumn *column);
PetscErrorCode TrsColumnFree(TrsColumn *column);
