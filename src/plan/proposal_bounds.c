/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/proposal_bounds.h"

enum { TRS_RECOUNT_EVERY = 4096 }; /* updates, so that the sums of doubles do not drift */
#define ROUNDING 1e-9

PetscErrorCode TrsProposalBoundsCreate(int world_size, int group, const TrsStorage *left, int max_tables,
                                       TrsProposalBounds *bounds)
{
  PetscFunctionBegin;
  *bounds = (TrsProposalBounds){
      .world_size = world_size, .group = group, .least = left[0], .most = left[0], .n_leaves = 1};
  for (int r = 0; r < world_size; r++) {
    bounds->least.hbm = PetscMin(bounds->least.hbm, left[r].hbm);
    bounds->least.ddr = PetscMin(bounds->least.ddr, left[r].ddr);
    bounds->most.hbm = PetscMax(bounds->most.hbm, left[r].hbm);
    bounds->most.ddr = PetscMax(bounds->most.ddr, left[r].ddr);
    bounds->sum_hbm += PetscMax(0, left[r].hbm);
    bounds->sum_ddr += PetscMax(0, left[r].ddr);
  }
  while (bounds->n_leaves < max_tables) bounds->n_leaves *= 2;
  PetscCall(PetscCalloc1(max_tables, &bounds->option));
  PetscCall(PetscCalloc1(2 * (size_t)bounds->n_leaves, &bounds->node));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProposalBoundsFree(TrsProposalBounds *bounds)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(bounds->option));
  PetscCall(PetscFree(bounds->node));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsBoundNode merge(const TrsBoundNode *a, const TrsBoundNode *b)
{
  return (TrsBoundNode){PetscMax(a->perf, b->perf), PetscMax(a->hbm, b->hbm), PetscMax(a->ddr, b->ddr)};
}

/* Add (sign 1) or take away (-1) an option's part of the sums. */
static void count(TrsProposalBounds *b, const TrsPlanOption *option, int sign)
{
  b->hbm += sign * (TrsInt128)option->total_storage.hbm;
  b->ddr += sign * (TrsInt128)option->total_storage.ddr;
  b->key[0] += sign > 0 ? option->hash[0] : -option->hash[0];
  b->key[1] += sign > 0 ? option->hash[1] : -option->hash[1];
  if (option->partition_by == TRS_PARTITION_UNIFORM) {
    b->n_uniform += sign;
    b->uniform_hbm += sign * (TrsInt128)option->max_hbm;
    b->uniform_ddr += sign * (TrsInt128)option->max_ddr;
    b->uniform_perf += sign * option->shard_class[0].total;
    return;
  }
  b->own_hbm += sign * (TrsInt128)option->total_storage.hbm;
  b->own_ddr += sign * (TrsInt128)option->total_storage.ddr;
  b->own_perf += sign * option->total_perf;
  if (option->partition_by == TRS_PARTITION_HOST) b->n_host += sign;
  if (option->partition_by == TRS_PARTITION_MULTI_HOST) b->n_grid += sign;
}

static TrsBoundNode leaf_of(const TrsPlanOption *option)
{
  if (option->partition_by == TRS_PARTITION_UNIFORM) return (TrsBoundNode){0};
  if (option->type == TRS_SHARDING_TABLE_COLUMN_WISE)
    return (TrsBoundNode){option->max_perf, option->total_storage.hbm, option->total_storage.ddr};
  return (TrsBoundNode){option->max_perf, option->max_hbm, option->max_ddr};
}

static void recount(TrsProposalBounds *b, const TrsProposal *proposal)
{
  b->n = proposal->n;
  b->n_updates = b->n_uniform = b->n_host = b->n_grid = 0;
  b->hbm = b->ddr = b->own_hbm = b->own_ddr = b->uniform_hbm = b->uniform_ddr = 0;
  b->uniform_perf = b->own_perf = 0;
  b->key[0] = b->key[1] = 0;
  for (int i = 0; i < proposal->n; i++) {
    b->option[i] = proposal->option[i];
    count(b, proposal->option[i], 1);
    b->node[b->n_leaves + i] = leaf_of(proposal->option[i]);
  }
  for (int i = b->n_leaves - 1; i >= 1; i--)
    b->node[i] = merge(&b->node[2 * (size_t)i], &b->node[2 * (size_t)i + 1]);
}

void TrsProposalBoundsUpdate(TrsProposalBounds *b, const TrsProposal *proposal, int changed)
{
  int i = b->n_leaves + changed;

  if (changed < 0 || ++b->n_updates >= TRS_RECOUNT_EVERY + b->n) {
    recount(b, proposal);
    return;
  }
  count(b, b->option[changed], -1);
  b->option[changed] = proposal->option[changed];
  count(b, b->option[changed], 1);
  b->node[i] = leaf_of(b->option[changed]);
  for (i /= 2; i >= 1; i /= 2) b->node[i] = merge(&b->node[2 * (size_t)i], &b->node[2 * (size_t)i + 1]);
}

double TrsProposalBoundsRating(const TrsProposalBounds *b)
{
  double own = PetscMax(b->node[1].perf, b->own_perf / b->world_size);

  return (b->uniform_perf + own) * (1 - ROUNDING);
}

TrsPartitionHint TrsProposalBoundsHint(const TrsProposalBounds *b, double limit)
{
  return (TrsPartitionHint){.limit = limit,
                            .certainly_above = (PetscBool)(TrsProposalBoundsRating(b) > limit),
                            .own_hbm = b->own_hbm,
                            .own_ddr = b->own_ddr,
                            .piece_hbm = b->node[1].hbm,
                            .piece_ddr = b->node[1].ddr,
                            .any_host = (PetscBool)(b->n_host > 0),
                            .any_grid = (PetscBool)(b->n_grid > 0)};
}

PetscBool TrsProposalBoundsFails(const TrsProposalBounds *b)
{
  return (PetscBool)(b->hbm > b->sum_hbm || b->ddr > b->sum_ddr ||
                     b->node[1].hbm > b->most.hbm * (TrsInt128)b->group ||
                     b->node[1].ddr > b->most.ddr * (TrsInt128)b->group);
}

/*
  A device is short when the largest piece does not fit on it; then it holds more than what is left on the poorest device less that
  piece. So only so many devices can be short, whoever is given what, and while one device (for a host: all of its devices) is not, every piece
  finds a place.
*/
PetscBool TrsProposalBoundsPlaced(const TrsProposalBounds *b)
{
  TrsInt128 room_hbm = b->least.hbm - b->uniform_hbm - b->node[1].hbm;
  TrsInt128 room_ddr = b->least.ddr - b->uniform_ddr - b->node[1].ddr;
  int n_places = b->n_host ? b->world_size / b->group : b->world_size;

  if (b->n_grid || room_hbm < 0 || room_ddr < 0) return PETSC_FALSE;
  return (PetscBool)(b->own_hbm / (room_hbm + 1) + b->own_ddr / (room_ddr + 1) < n_places);
}
