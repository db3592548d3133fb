/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pieces describe the needs of non-uniform options on devices and hosts, as sums and maxima. From
  them follows if all options are certain to be placed.

  The argument is about volume. A device is short of room for a piece if it holds more bytes than
  its room minus the piece. The bytes in place can make only a limited number of devices short,
  whatever the placement. While one device is not short, the piece fits there. For hosts, the same
  argument uses each host's fullest device.
*/
#pragma once

#include "plan/search_space.h"

typedef enum {
  TRS_PIECE_SHARD, /* table_wise, column_wise: a shard, on any device */
  /* table_column_wise: the whole option, on a device of any whole host */
  TRS_PIECE_HOST_COLUMNS,
  TRS_PIECE_HOST_ROWS, /* table_row_wise: a shard, on each device of any host */
  /* grid_shard: a device's share, on each device of several consecutive hosts */
  TRS_PIECE_GRID,
  TRS_N_PIECES
} TrsPieceKind;

typedef struct {
  int64_t n[TRS_N_PIECES];          /* number of options */
  TrsStorage largest[TRS_N_PIECES]; /* the largest piece on one device */
  int64_t n_negative;               /* options with negative bytes; they rule out any certainty */
  int grid_hosts;                   /* the most consecutive hosts that a grid needs */
  TrsInt128 hbm, ddr;               /* sums over all shards */
  TrsInt128 host_hbm, host_ddr;     /* upper bounds: the hosts' fullest devices, summed */
} TrsPieces;

/*
  Add (sign 1) or remove (-1) a non-uniform option. `largest` and grid_hosts never decrease. Not
  collective.
*/
void TrsPiecesCount(TrsPieces *pieces, const TrsPlanOption *option, int sign, int world_size, int group);

/* Add the sums of `next` to `sum`. The counts and maxima of `sum` become those of `next`. */
void TrsPiecesFollow(TrsPieces *sum, const TrsPieces *next);

/*
  True if every piece fits on devices with `room` each, even if all bytes are placed before it. Not
  collective.
*/
PetscBool TrsPiecesFit(const TrsPieces *pieces, const TrsStorage *room, int world_size, int group);
