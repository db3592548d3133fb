/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Columns of 8-byte numbers that grow row by row for days in bounded memory. Internal to io/. One
  rank, not collective.

  A column keeps at most one block of rows (64 KiB) in memory and 8 bytes for each block before it;
  full blocks lie in a spill
  file that has no name, so that a killed run leaves nothing behind. Where the spill file cannot be
  written (a full disk),
  rows stay in memory until it can: no row is ever lost for that.
*/
#pragma once

#include "core/buffer.h"

enum { TRS_COLUMN_BLOCK_ROWS = 8192 };

/* The file of full blocks that columns share: made with its first block, in the folder of a path.
   */
typedef struct {
  const char *beside; /* path in that folder; borrowed */
  int fd;             /* -1: not made yet */
  int64_t n_blocks;
} TrsSpill;

typedef struct {
  int64_t rows;      /* all of them */
  int64_t n_spilled; /* blocks in the spill file */
  TrsBuffer place;   /* int64 [n_spilled] where each block is, in blocks */
  TrsBuffer tail;    /* the rows behind the spilled blocks: always the last one */
} TrsColumn;

void TrsSpillClose(TrsSpill *spill);

/* Append a number given by its 8 bytes. Errors: MEMORY */
PetscErrorCode TrsColumnAppend(TrsColumn *column, TrsSpill *spill, const void *value);

/* The number of the last row, if there is one. */
const void *TrsColumnLast(const TrsColumn *column);

/*
  Take the last row away. Only the rows in memory can go, which at least the last one is after an
  append.
  Returns whether there was one.
*/
PetscBool TrsColumnDropLast(TrsColumn *column);

/* Read rows first .. first + n - 1, within one block of TRS_COLUMN_BLOCK_ROWS. Returns 0 or an
   errno. */
int TrsColumnRead(const TrsColumn *column, const TrsSpill *spill, int64_t first, int64_t n, void *values);

/* Forget all rows, but not the room for them. */
void TrsColumnClear(TrsColumn *column);
PetscErrorCode TrsColumnFree(TrsColumn *column);
