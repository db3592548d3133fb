/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/pieces.h"

#include <math.h>

#define ROUNDING 1e-12 /* allowance for rounding errors of quotients */

TrsPieceKind TrsPieceKindOf(const TrsPlanOption *option)
{
  switch (option->partition_by) {
  case TRS_PARTITION_HOST:
    return option->type == TRS_SHARDING_TABLE_COLUMN_WISE ? TRS_PIECE_HOST_COLUMNS : TRS_PIECE_HOST_ROWS;
  case TRS_PARTITION_MULTI_HOST: return TRS_PIECE_GRID;
  case TRS_PARTITION_DEVICE:
  case TRS_PARTITION_UNIFORM: break;
  }
  return TRS_PIECE_SHARD;
}

static TrsStorage times(const TrsPlanOption *option, int n)
{
  TrsInt128 hbm = (TrsInt128)option->max_hbm * n, ddr = (TrsInt128)option->max_ddr * n;

  return (TrsStorage){(int64_t)PetscMin(hbm, INT64_MAX), (int64_t)PetscMin(ddr, INT64_MAX)};
}

void TrsPiecesCount(TrsPieces *pieces, const TrsPlanOption *option, int sign, int world_size, int group)
{
  TrsPieceKind kind = TrsPieceKindOf(option);
  TrsStorage piece = {option->max_hbm, option->max_ddr}, *largest = &pieces->largest[kind];
  TrsInt128 host_hbm = option->total_storage.hbm, host_ddr = option->total_storage.ddr;
  int n_hosts = world_size / group;

  if (kind == TRS_PIECE_HOST_COLUMNS) piece = option->total_storage;
  if (kind == TRS_PIECE_HOST_ROWS || kind == TRS_PIECE_GRID) {
    int n = option->n_shards / group;

    host_hbm = (TrsInt128)option->max_hbm * n;
    host_ddr = (TrsInt128)option->max_ddr * n;
    if (kind == TRS_PIECE_GRID) {
      int wanted = PetscMax(1, PetscMin(n, n_hosts));

      /* If there are more column blocks than hosts, a host gets several of them. */
      piece = times(option, (n + wanted - 1) / wanted);
      pieces->grid_hosts = PetscMax(pieces->grid_hosts, wanted);
    }
  }
  pieces->n[kind] += sign;
  pieces->n_negative += option->min_hbm < 0 || option->min_ddr < 0 ? sign : 0;
  largest->hbm = PetscMax(largest->hbm, piece.hbm);
  largest->ddr = PetscMax(largest->ddr, piece.ddr);
  pieces->hbm += sign * (TrsInt128)option->total_storage.hbm;
  pieces->ddr += sign * (TrsInt128)option->total_storage.ddr;
  pieces->host_hbm += sign * host_hbm;
  pieces->host_ddr += sign * host_ddr;
}

void TrsPiecesFollow(TrsPieces *sum, const TrsPieces *next)
{
  TrsPieces both = *next;

  both.hbm += sum->hbm;
  both.ddr += sum->ddr;
  both.host_hbm += sum->host_hbm;
  both.host_ddr += sum->host_ddr;
  *sum = both;
}

/*
  The largest number of bins in which the piece may no longer fit, after hbm and ddr bytes are
  placed. HUGE_VAL if the piece does not fit in an empty bin.
*/
static double n_short(TrsInt128 hbm, TrsInt128 ddr, const TrsStorage *room, const TrsStorage *piece)
{
  double left_hbm = (double)((TrsInt128)room->hbm - piece->hbm),
         left_ddr = (double)((TrsInt128)room->ddr - piece->ddr);

  if (left_hbm < 0 || left_ddr < 0) return HUGE_VAL;
  return floor((double)hbm / (left_hbm + 1) * (1 + ROUNDING)) +
         floor((double)ddr / (left_ddr + 1) * (1 + ROUNDING));
}

PetscBool TrsPiecesFit(const TrsPieces *p, const TrsStorage *room, int world_size, int group)
{
  int n_hosts = world_size / group;

  if (p->n_negative) return PETSC_FALSE;
  for (int kind = 0; kind < TRS_N_PIECES; kind++) {
    PetscBool by_host = (PetscBool)(kind == TRS_PIECE_HOST_ROWS || kind == TRS_PIECE_GRID);
    double bins = kind == TRS_PIECE_SHARD ? world_size : (by_host ? n_hosts : n_hosts * group), short_bins;

    if (p->n[kind] == 0) continue;
    short_bins = n_short(by_host ? p->host_hbm : p->hbm, by_host ? p->host_ddr : p->ddr, room,
                         &p->largest[kind]);
    /* A grid needs consecutive hosts, so also count the hosts between those without enough
       memory. */
    if (kind == TRS_PIECE_GRID) short_bins = (short_bins + 1) * p->grid_hosts - 1;
    if (short_bins >= bins) return PETSC_FALSE;
  }
  return PETSC_TRUE;
}
