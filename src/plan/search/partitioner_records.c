/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The partitioner's records of a proposal's options: what it reads of them, their placing order, and
  sums. A record is kept until the proposal has another option for the table. So the work for a
  proposal that differs little from the last one is small, and the results are the same.
*/
#include "plan/impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- sums over options ---- */

/*
  Add (sign 1) or remove (sign -1) the memory of a uniform option, as differences between
  neighbouring devices. Each class of an evenly split option covers one range of ranks.
*/
static void count_uniform(TrsPartitioner p, const TrsPlanOption *option, int sign)
{
  const TrsShardClass *c = option->shard_class;
  const int W = p->config.world_size;

  p->n_uniform += sign;
  p->n_uniform_by_hand += option->same_perf ? 0 : sign;
  p->n_misfits += option->n_shards == W ? 0 : sign;
  if (option->n_shards != W || !option->same_perf) return;
  if (option->class_of) {
    for (int r = 0; r < W; r++) {
      const TrsStorage *now = &c[option->class_of[r]].storage;

      p->uniform_hbm[r] += sign * now->hbm;
      p->uniform_hbm[r + 1] -= sign * now->hbm;
      p->uniform_ddr[r] += sign * now->ddr;
      p->uniform_ddr[r + 1] -= sign * now->ddr;
    }
    return;
  }
  p->uniform_hbm[0] += sign * c[0].storage.hbm;
  p->uniform_ddr[0] += sign * c[0].storage.ddr;
  for (int k = 1; k < option->n_classes; k++) {
    p->uniform_hbm[option->n_full + k - 1] += sign * (c[k].storage.hbm - c[k - 1].storage.hbm);
    p->uniform_ddr[option->n_full + k - 1] += sign * (c[k].storage.ddr - c[k - 1].storage.ddr);
  }
}

static void count(TrsPartitioner p, const TrsPlanOption *option, int sign)
{
  p->n_by_hand += option->same_perf ? 0 : sign;
  p->in_module[option->module] += sign;
  if (option->partition_by == TRS_PARTITION_UNIFORM) count_uniform(p, option, sign);
}

static void forget(TrsPartitioner p)
{
  const size_t n = (size_t)p->config.world_size + 2;

  memset(p->record, 0, (size_t)p->max_tables * sizeof(*p->record));
  memset(p->uniform_hbm, 0, n * sizeof(*p->uniform_hbm));
  memset(p->uniform_ddr, 0, n * sizeof(*p->uniform_ddr));
  memset(p->in_module, 0, sizeof(p->in_module));
  p->n_uniform = p->n_uniform_by_hand = p->n_misfits = p->n_by_hand = 0;
  p->n_group = 0;
}

void TrsPartitionerTake(TrsPartitioner p, const TrsProposal *proposal)
{
  if (p->n_records != proposal->n) forget(p);
  p->n_records = proposal->n;
  for (int i = 0; i < proposal->n; i++) {
    const TrsPlanOption *option = proposal->option[i];
    TrsOptionRecord *record = &p->record[i];

    if (record->option == option) continue;
    if (record->option) count(p, record->option, -1);
    count(p, option, 1);
    *record = (TrsOptionRecord){.option = option,
                                .first = option->shard_class[0],
                                .total_storage = option->total_storage,
                                .total_perf = option->total_perf,
                                .n_shards = option->n_shards,
                                .module = option->module,
                                .partition_by = option->partition_by,
                                .piece = TrsPieceKindOf(option),
                                .is_negative = option->min_hbm < 0 || option->min_ddr < 0,
                                .is_uniform = option->partition_by == TRS_PARTITION_UNIFORM,
                                .same_perf = option->same_perf == PETSC_TRUE,
                                .one_class = option->n_classes == 1,
                                .is_new = 1};
  }
}

/* ---- the placing order ---- */

static PetscBool comes_before(const TrsGroupKey *a, const TrsGroupKey *b)
{
  for (int k = 0; k < 3; k++) {
    if (a->key[k] != b->key[k]) return (PetscBool)(a->key[k] > b->key[k]);
  }
  return (PetscBool)(a->position < b->position);
}

int TrsGroupKeyCompare(const void *a, const void *b)
{
  return comes_before(a, b) ? -1 : 1;
}

static TrsGroupKey key_of(const struct TrsPartitionerImpl *p, int position)
{
  const TrsOptionRecord *record = &p->record[position];
  TrsGroupKey group = {.position = position, .is_uniform = record->is_uniform};

  group.key[0] = p->balances_modules ? -p->in_module[record->module] : 0;
  if (p->sorts_by_perf) {
    /* Doubles >= 0 sort like their bits taken as integers. */
    memcpy(&group.key[1], &record->total_perf, sizeof(double));
  } else {
    group.key[1] = record->total_storage.hbm;
    group.key[2] = record->total_storage.ddr;
  }
  return group;
}

/*
  Move the groups whose keys have changed from p->group to p->moved. The others stay in order.
  Returns the number of moved groups.
*/
static int take_out_changed(TrsPartitioner p, PetscBool all)
{
  int n_kept = 0, n_moved = 0;

  for (int g = 0; g < p->n_group; g++) {
    TrsGroupKey *group = &p->group[g];
    const int i = group->position;

    if (all || p->record[i].is_new) {
      const TrsGroupKey now = key_of(p, i);

      p->record[i].is_new = 0;
      if (memcmp(now.key, group->key, sizeof(now.key)) != 0) {
        p->moved[n_moved++] = now;
        continue;
      }
      group->is_uniform = now.is_uniform;
    }
    p->group[n_kept++] = *group;
  }
  return n_moved;
}

/* Merge the sorted groups in p->moved into p->group, which has n_group - n_moved sorted groups. */
static void merge_moved(TrsPartitioner p, int n_moved)
{
  int kept = p->n_group - n_moved - 1, m = n_moved - 1;

  for (int g = p->n_group - 1; m >= 0; g--) {
    const PetscBool is_kept = (PetscBool)(kept >= 0 && comes_before(&p->moved[m], &p->group[kept]));

    p->group[g] = is_kept ? p->group[kept--] : p->moved[m--];
  }
}

void TrsPartitionerOrder(TrsPartitioner p, PetscBool sort_by_perf, PetscBool balance_modules)
{
  /* a module's number of tables is part of the keys of all its tables */
  const PetscBool all = (PetscBool)(balance_modules || p->balances_modules != balance_modules ||
                                    p->sorts_by_perf != sort_by_perf);
  int n_moved;

  p->sorts_by_perf = sort_by_perf;
  p->balances_modules = balance_modules;
  if (p->n_group != p->n_records) {
    for (int i = 0; i < p->n_records; i++) {
      p->moved[i] = key_of(p, i);
      p->record[i].is_new = 0;
    }
    n_moved = p->n_group = p->n_records;
  } else {
    n_moved = take_out_changed(p, all);
  }
  /* no two groups compare equal, so the order does not depend on the method */
  qsort(p->moved, (size_t)n_moved, sizeof(*p->moved), TrsGroupKeyCompare);
  merge_moved(p, n_moved);
}
