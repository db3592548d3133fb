/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Pieces: what options that are not uniform ask of devices and hosts, as sums and maxima, and when all are certain to find room.

  The argument is one of volume. A device is short of a piece when it holds more than its room less that piece. So only so many devices
  can be short, whoever was given what, and while one is not, the piece finds a place. The same for hosts, by their fullest device.
*/
#pragma once

#include "plan/search_space.h"

typedef enum {
  TRS_PIECE_SHARD,        /* table_wise, column_wise: a shard, on any device */
  TRS_PIECE_HOST_COLUMNS, /* table_column_wise: the option as a whole, on a device of any host that is whole */
  TRS_PIECE_HOST_ROWS,    /* table_row_wise: a shard, on each device of any host */
  TRS_PIECE_GRID,         /* grid_shard: what a device gets, on each device of several hosts in a row */
  TRS_N_PIECES
} TrsPieceKind;

typedef struct {
  int64_t n[TRS_N_PIECES];          /* options */
  TrsStorage largest[TRS_N_PIECES]; /* on one device */
  int64_t n_negative;               /* options with negative bytes: nothing is certain */
  int grid_hosts;                   /* the most that a grid needs in a row */
  TrsInt128 hbm, ddr;               /* of all shards */
  TrsInt128 host_hbm, host_ddr;     /* at most so much do the fullest devices of all hosts get in sum */
} TrsPieces;

/* Count an option that is not uniform in (sign 1) or out (-1); largest and grid_hosts never fall. Not collective. */
void TrsPiecesCount(TrsPieces *pieces, const TrsPlanOption *option, int sign, int world_size, int group);

/* Add the sums of `next` to those of `sum`; the counts and maxima become those of `next`. */
void TrsPiecesFollow(TrsPieces *sum, const TrsPieces *next);

/* Does every piece find a place on devices with `room` each, even if all bytes are placed before it? Not collective. */
PetscBool TrsPiecesFit(const TrsPieces *pieces, const TrsStorage *room, int world_size, int group);
