/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pieces describe the memory that non-uniform options need on devices and hosts, as sums and maxima.
  They can prove that all options will be placed.

  The proof counts bytes. A piece does not fit on a device if the device's bytes in use exceed its
  memory minus the piece. Given the total of all bytes, only a limited number of devices can be so
  full, whatever the placement. If at least one device is not, the piece fits there. For hosts, the
  same proof uses each host's fullest device.
*/
#pragma once

#include "plan/search/search_space.h"

typedef enum {
  TRS_PIECE_SHARD, /* table_wise, column_wise: one shard on any device */
  /* table_column_wise: the whole option on one device of any complete host */
  TRS_PIECE_HOST_COLUMNS,
  TRS_PIECE_HOST_ROWS, /* table_row_wise: one shard on each device of any host */
  /* grid_shard: the bytes of one device, on each device of several consecutive hosts */
  TRS_PIECE_GRID,
  TRS_N_PIECES
} TrsPieceKind;

typedef struct {
  int64_t n[TRS_N_PIECES];          /* number of options */
  TrsStorage largest[TRS_N_PIECES]; /* the largest piece on one device */
  /* number of options with negative bytes; if there are any, nothing is certain */
  int64_t n_negative;
  int grid_hosts;     /* the largest number of consecutive hosts that a grid needs */
  TrsInt128 hbm, ddr; /* sums over all shards */
  /* upper bounds on the sum of the bytes on each host's fullest device */
  TrsInt128 host_hbm, host_ddr;
} TrsPieces;

/* The kind of an option's pieces. Not collective. */
TrsPieceKind TrsPieceKindOf(const TrsPlanOption *option);

/*
  Add (sign 1) or remove (sign -1) a non-uniform option. `largest` and grid_hosts never decrease.
  Not collective.
*/
void TrsPiecesCount(TrsPieces *pieces, const TrsPlanOption *option, int sign, int world_size, int group);

/* Add the byte sums of `next` to `sum`, and copy the counts and maxima of `next` to `sum`. */
void TrsPiecesFollow(TrsPieces *sum, const TrsPieces *next);

/*
  True if every piece fits on devices with `room` bytes each, even if all bytes are placed before
  it. Not collective.
*/
PetscBool TrsPiecesFit(const TrsPieces *pieces, const TrsStorage *room, int world_size, int group);
