/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pieces describe what options that are not uniform need on devices and hosts, as sums and maxima.
  They tell when all options are certain to find room.

  The argument is one of volume. A device is short of a piece if it holds more than its room less
  that piece. So only a certain number of devices can be short, whatever the placement. As long as
  one device is not short, the piece finds a place. The same argument holds for hosts, by their
  fullest device.
*/
#pragma once

#include "plan/search_space.h"

typedef enum {
  TRS_PIECE_SHARD, /* table_wise, column_wise: a shard, on any device */
  /* table_column_wise: the option as a whole, on a device of any whole host */
  TRS_PIECE_HOST_COLUMNS,
  TRS_PIECE_HOST_ROWS, /* table_row_wise: a shard, on each device of any host */
  /* grid_shard: the share of a device, on each device of several consecutive hosts */
  TRS_PIECE_GRID,
  TRS_N_PIECES
} TrsPieceKind;

typedef struct {
  int64_t n[TRS_N_PIECES];          /* number of options */
  TrsStorage largest[TRS_N_PIECES]; /* the largest piece on one device */
  int64_t n_negative;               /* options with negative bytes, with which nothing is certain */
  int grid_hosts;                   /* the most consecutive hosts that a grid needs */
  TrsInt128 hbm, ddr;               /* sums over all shards */
  TrsInt128 host_hbm, host_ddr;     /* most bytes of the hosts' fullest devices, in sum */
} TrsPieces;

/*
  Add (sign 1) or remove (-1) an option that is not uniform.
  `largest` and grid_hosts never fall. Not collective.
*/
void TrsPiecesCount(TrsPieces *pieces, const TrsPlanOption *option, int sign, int world_size, int group);

/* Add the sums of `next` to those of `sum`. The counts and maxima become those of `next`. */
void TrsPiecesFollow(TrsPieces *sum, const TrsPieces *next);

/*
  Tell whether every piece finds a place on devices with `room` each, even if all bytes are placed
  before it. Not collective.
*/
PetscBool TrsPiecesFit(const TrsPieces *pieces, const TrsStorage *room, int world_size, int group);
