/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Columns of 8-byte numbers that grow row by row for days in bounded memory. A row has one number,
  or several. Internal to io/. One rank, not collective.

  A column keeps at most one block of rows (64 KiB) in memory, and 8 bytes for each earlier block.
  Full blocks lie in a spill file that has no name, so that a killed run leaves nothing behind. If
  the spill file cannot be written (a full disk), rows stay in memory until it can. No row is ever
  lost.
*/
#pragma once

#include "core/buffer.h"

/* Numbers of a block, which is the number of rows of one number in a block. */
enum { TRS_COLUMN_BLOCK_ROWS = 8192 };

/*
  The file of full blocks, which columns share.
  It is made with the first block, in the folder of a path.
*/
typedef struct {
  const char *beside; /* path in that folder; borrowed */
  int fd;             /* -1 before the file is made */
  int64_t n_blocks;
} TrsSpill;

typedef struct {
  int width;         /* numbers of a row, up to TRS_COLUMN_BLOCK_ROWS; 0 counts as 1 */
  int64_t rows;      /* all rows, spilled or not */
  int64_t n_spilled; /* number of blocks in the spill file */
  TrsBuffer place;   /* int64 [n_spilled] position of each block, counted in blocks */
  TrsBuffer tail;    /* rows behind the spilled blocks, at least the last one */
} TrsColumn;

/* Make the file if there is none yet. Returns whether there is a file. */
PetscBool TrsSpillOpen(TrsSpill *spill);
void TrsSpillClose(TrsSpill *spill);

/* The bytes of a row, and how many rows a block has. */
int64_t TrsColumnRowBytes(const TrsColumn *column);
int64_t TrsColumnBlockRows(const TrsColumn *column);

/* Append a row, given by 8 bytes for each number. Errors: MEMORY. */
PetscErrorCode TrsColumnAppend(TrsColumn *column, TrsSpill *spill, const void *value);

/* The numbers of the last row, or NULL if there is no row. */
const void *TrsColumnLast(const TrsColumn *column);

/*
  Remove the last row. Only rows in memory can be removed, which after an append includes at least
  the last one. Returns whether there was a row.
*/
PetscBool TrsColumnDropLast(TrsColumn *column);

/*
  Read rows first .. first + n - 1, which must lie in one block of TrsColumnBlockRows(). Returns 0
  or an errno.
*/
int TrsColumnRead(const TrsColumn *column, const TrsSpill *spill, int64_t first, int64_t n, void *values);

/* Forget all rows, but keep the memory. */
void TrsColumnClear(TrsColumn *column);
PetscErrorCode TrsColumnFree(TrsColumn *column);
