/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/proposal_bounds.h"

#include <math.h>
#include <string.h>

enum {
  /* Number of updates between two recounts. A recount removes the rounding errors of sums of
     doubles, and lets maxima decrease. */
  TRS_RECOUNT_EVERY = 4096
};
#define ROUNDING 1e-9

PetscErrorCode TrsProposalBoundsCreate(const TrsPartitionerConfig *config, int max_tables,
                                       TrsProposalBounds *bounds)
{
  const TrsStorage *left = config->left;

  PetscFunctionBegin;
  *bounds = (TrsProposalBounds){.world_size = config->world_size,
                                .group = config->group,
                                .least = left[0],
                                .most = left[0],
                                .on_first = left[0],
                                .n_leaves = 1};
  bounds->largest_first = (PetscBool)(!config->memory_balanced && !config->sort_by_perf &&
                                      !config->balance_modules);
  for (int r = 0; r < config->world_size; r++) {
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
  PetscCall(PetscCalloc1(TRS_N_SIZES, &bounds->of_size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsProposalBoundsFree(TrsProposalBounds *bounds)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(bounds->option));
  PetscCall(PetscFree(bounds->node));
  PetscCall(PetscFree(bounds->of_size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsBoundNode merge(const TrsBoundNode *a, const TrsBoundNode *b)
{
  return (TrsBoundNode){PetscMax(a->perf, b->perf), PetscMax(a->hbm, b->hbm), PetscMax(a->ddr, b->ddr)};
}

/* The size class of a number of bytes. There are four classes per power of two. */
static int quarters(int64_t bytes)
{
  int exponent;
  double mantissa = frexp((double)bytes, &exponent); /* in [0.5, 1) */

  return 4 * (exponent - 1) + (int)(8 * mantissa) - 4;
}

/*
  An option's size class in the partitioner's placing order. An option of a larger class is never
  placed later than an option of a smaller class.
*/
static int size_of(const TrsProposalBounds *b, const TrsPlanOption *option)
{
  if (!b->largest_first) return 0;
  if (option->total_storage.hbm > 0)
    return PetscMin(TRS_N_SIZES / 2 + quarters(option->total_storage.hbm), TRS_N_SIZES - 1);
  return option->total_storage.ddr > 0 ? PetscMin(quarters(option->total_storage.ddr), TRS_N_SIZES / 2 - 1)
                                       : 0;
}

static void count_uniform(TrsProposalBounds *b, const TrsPlanOption *option, int sign)
{
  const TrsShardClass *first = TrsOptionShard(option, 0);

  b->uniform.n += sign;
  b->uniform.n_negative += option->min_hbm < 0 || option->min_ddr < 0 ? sign : 0;
  b->uniform.perf += sign * option->shard_class[0].total;
  b->uniform.least_hbm += sign * (TrsInt128)option->min_hbm;
  b->uniform.least_ddr += sign * (TrsInt128)option->min_ddr;
  b->uniform.most_hbm += sign * (TrsInt128)option->max_hbm;
  b->uniform.most_ddr += sign * (TrsInt128)option->max_ddr;
  b->uniform.first_hbm += sign * (TrsInt128)first->storage.hbm;
  b->uniform.first_ddr += sign * (TrsInt128)first->storage.ddr;
}

/* Add (sign 1) or remove (sign -1) what an option contributes to the sums. */
static void count(TrsProposalBounds *b, const TrsPlanOption *option, int sign)
{
  int size = size_of(b, option);

  b->hbm += sign * (TrsInt128)option->total_storage.hbm;
  b->ddr += sign * (TrsInt128)option->total_storage.ddr;
  b->key[0] += sign > 0 ? option->hash[0] : -option->hash[0];
  b->key[1] += sign > 0 ? option->hash[1] : -option->hash[1];
  if (option->partition_by == TRS_PARTITION_UNIFORM) {
    count_uniform(b, option, sign);
    return;
  }
  b->own_perf += sign * option->total_perf;
  TrsPiecesCount(&b->own, option, sign, b->world_size, b->group);
  TrsPiecesCount(&b->of_size[size], option, sign, b->world_size, b->group);
  b->smallest = PetscMin(b->smallest, size);
  b->largest = PetscMax(b->largest, size);
}

static TrsBoundNode leaf_of(const TrsPlanOption *option)
{
  if (option->partition_by == TRS_PARTITION_UNIFORM) return (TrsBoundNode){0};
  return (TrsBoundNode){option->max_perf, option->max_hbm, option->max_ddr};
}

static void recount(TrsProposalBounds *b, const TrsProposal *proposal)
{
  if (b->largest >= b->smallest)
    memset(&b->of_size[b->smallest], 0, (size_t)(b->largest - b->smallest + 1) * sizeof(*b->of_size));
  b->smallest = TRS_N_SIZES - 1;
  b->largest = 0;
  memset(&b->own, 0, sizeof(b->own));
  memset(&b->uniform, 0, sizeof(b->uniform));
  b->n = proposal->n;
  b->n_updates = 0;
  b->hbm = b->ddr = 0;
  b->own_perf = 0;
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

  return (b->uniform.perf + own) * (1 - ROUNDING);
}

double TrsProposalBoundsSlowestShard(const TrsProposalBounds *b)
{
  return b->node[1].perf;
}

PetscBool TrsProposalBoundsFails(const TrsProposalBounds *b)
{
  if (b->hbm > b->sum_hbm || b->ddr > b->sum_ddr) return PETSC_TRUE;
  if (b->uniform.n_negative || b->own.n_negative) return PETSC_FALSE;
  return (PetscBool)(b->uniform.first_hbm > b->on_first.hbm || b->uniform.first_ddr > b->on_first.ddr ||
                     b->uniform.least_hbm + b->node[1].hbm > b->most.hbm ||
                     b->uniform.least_ddr + b->node[1].ddr > b->most.ddr);
}

PetscBool TrsProposalBoundsPlaced(const TrsProposalBounds *b)
{
  TrsInt128 hbm = b->least.hbm - b->uniform.most_hbm, ddr = b->least.ddr - b->uniform.most_ddr;
  TrsStorage room = {(int64_t)hbm, (int64_t)ddr};
  /* The largest set of pieces that may be placed before an option of this size. */
  TrsPieces placed = {0};

  if (hbm < 0 || ddr < 0 || b->uniform.n_negative || b->own.n_negative) return PETSC_FALSE;
  /* In most cases this simple check succeeds. */
  if (TrsPiecesFit(&b->own, &room, b->world_size, b->group)) return PETSC_TRUE;
  for (int size = b->largest; size >= b->smallest; size--) {
    TrsPiecesFollow(&placed, &b->of_size[size]);
    if (!TrsPiecesFit(&placed, &room, b->world_size, b->group)) return PETSC_FALSE;
  }
  return PETSC_TRUE;
}
