/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/advice/failure.h"

/* Bytes by which an option's largest shard exceeds the memory of every device; 0 if it fits. */
static int64_t excess(const TrsPlanOption *option, const TrsStorage *most)
{
  return PetscMax(0, option->max_hbm - most->hbm) + PetscMax(0, option->max_ddr - most->ddr);
}

static PetscBool needs_less(const TrsStorage *a, const TrsStorage *b)
{
  return (PetscBool)(a->hbm < b->hbm || (a->hbm == b->hbm && a->ddr < b->ddr));
}

/* Bytes of a table's rows, optimizer states and directory. */
static double table_bytes(const TrsProblem *p, int t)
{
  const TrsTableConfig *table = &p->tables->table[t];
  double copies = 1;

  switch (TrsPlanOptimizerState(&p->settings, table)) {
  case TRS_STATE_NONE: break;
  case TRS_STATE_ROWWISE: copies = 1.0 + 1.0 / (double)table->embedding_dim; break;
  case TRS_STATE_ONE: copies = 2; break;
  case TRS_STATE_TWO: copies = 3; break;
  }
  return copies * (double)table->num_embeddings * (double)table->embedding_dim *
             TrsDTypeBits(table->data_type) / 8.0 +
         (double)table->num_embeddings * (double)TrsTableKeysRowBytes(table);
}

/* The memory that the tables need. */
typedef struct {
  TrsInt128 need_hbm;           /* HBM that all tables need with their smallest options */
  int largest_hbm, largest_ddr; /* tables whose smallest options need the most */
  double table_bytes;           /* sum of table_bytes() over all tables */
} TrsNeeds;

/*
  Find the largest tables. A table's closest option is the option with the smallest excess(). Also
  find the table whose closest option has the largest excess.
*/
static TrsNeeds look_at_tables(const TrsProblem *p, const TrsSolution *s, TrsFailure *f)
{
  const TrsSearchSpace *space = &s->space;
  int64_t most_hbm = -1, most_ddr = -1, worst = 0;
  TrsNeeds needs = {.need_hbm = 0};

  f->most = s->reservation.left[0];
  for (int r = 0; r < p->topology.world_size; r++) {
    f->most.hbm = PetscMax(f->most.hbm, s->reservation.left[r].hbm);
    f->most.ddr = PetscMax(f->most.ddr, s->reservation.left[r].ddr);
    f->sum_hbm += s->reservation.left[r].hbm;
    f->sum_ddr += s->reservation.left[r].ddr;
  }
  for (int t = 0; t < space->n_tables; t++) {
    const TrsPlanOption *closest = &space->option[space->table[t].first], *least = closest;

    for (int i = 1; i < space->table[t].n; i++) {
      const TrsPlanOption *option = &space->option[space->table[t].first + i];

      if (excess(option, &f->most) < excess(closest, &f->most)) closest = option;
      if (needs_less(&option->total_storage, &least->total_storage)) least = option;
    }
    needs.need_hbm += least->total_storage.hbm;
    needs.table_bytes += table_bytes(p, space->table[t].table);
    if (least->total_storage.hbm > most_hbm) needs.largest_hbm = space->table[t].table;
    if (least->total_storage.ddr > most_ddr) needs.largest_ddr = space->table[t].table;
    most_hbm = PetscMax(most_hbm, least->total_storage.hbm);
    most_ddr = PetscMax(most_ddr, least->total_storage.ddr);
    if (excess(closest, &f->most) > worst) f->option = closest;
    worst = PetscMax(worst, excess(closest, &f->most));
  }
  f->short_bytes = (double)worst;
  return needs;
}

/* True if batches need more bytes than tables (`tables`), so no other data type would help. */
static PetscBool is_for_batches(const TrsProblem *p, const TrsSolution *s, double need, double tables)
{
  const TrsStorage *kjt = &s->reservation.kjt;

  return (PetscBool)(need - tables + ((double)kjt->hbm + (double)kjt->ddr) * p->topology.world_size > tables);
}

/* After all proposals have failed: find the memory that is too small. */
static void find_lack(const TrsProblem *p, const TrsSolution *s, TrsFailure *f)
{
  const TrsPlanSearch *search = &s->search;
  const TrsNeeds needs = look_at_tables(p, s, f);
  const PetscBool by_hbm = (PetscBool)(search->lowest_hbm > f->sum_hbm);

  f->in_time = (PetscBool)(search->timed_out && !search->no_plan_proven && needs.need_hbm <= f->sum_hbm);
  f->splits = PETSC_TRUE;
  if (by_hbm || search->lowest_ddr > f->sum_ddr) {
    f->kind = TRS_FAILURE_MEMORY;
    f->table = by_hbm ? needs.largest_hbm : needs.largest_ddr;
    f->hbm = by_hbm;
    f->ddr = (PetscBool)(search->lowest_ddr > f->sum_ddr);
    f->need = (double)(by_hbm ? search->lowest_hbm : search->lowest_ddr);
    f->have = (double)(by_hbm ? f->sum_hbm : f->sum_ddr);
    f->short_bytes = f->need - f->have;
    f->for_batches = is_for_batches(p, s, f->need, needs.table_bytes);
  } else if (f->option) {
    f->kind = TRS_FAILURE_SHARD;
    f->table = f->option->table;
    f->hbm = (PetscBool)(f->option->max_hbm > f->most.hbm);
    f->ddr = (PetscBool)(f->option->max_ddr > f->most.ddr);
    f->splits = (PetscBool)(f->option->type == TRS_SHARDING_ROW_WISE);
    f->for_batches = is_for_batches(
        p, s, (double)f->option->total_storage.hbm + (double)f->option->total_storage.ddr,
        table_bytes(p, f->table));
  } else {
    f->kind = TRS_FAILURE_PACKING;
    f->hbm = p->topology.is_cuda;
    f->table = f->hbm ? needs.largest_hbm : needs.largest_ddr;
    f->ddr = (PetscBool)(!f->hbm || f->sum_ddr < 2 * search->lowest_ddr);
  }
}

static TrsFailure lack(TrsFailureKind kind, PetscBool hbm, double need, double have)
{
  return (TrsFailure){.kind = kind,
                      .hbm = hbm,
                      .ddr = (PetscBool)!hbm,
                      .need = need,
                      .have = have,
                      .short_bytes = need - have};
}

void TrsFailureFind(const TrsProblem *p, const TrsSolution *s, TrsFailure *f)
{
  const TrsReservation *reservation = &s->reservation;
  const TrsProposal *best = &s->search.best.proposal;

  *f = (TrsFailure){.kind = TRS_FAILURE_NONE};
  if (reservation->too_little) {
    *f = lack(TRS_FAILURE_RESERVED, PETSC_TRUE, 0, (double)PetscMin(-1, reservation->left[0].hbm));
  } else if (s->table_alone >= 0) {
    f->kind = TRS_FAILURE_NO_OPTION;
    f->table = s->table_alone;
  } else if (s->space.n_tables == 0) {
    f->kind = TRS_FAILURE_NONE;
  } else if (s->search.best.found) {
    for (int i = 0; i < best->n && !f->kind; i++) {
      if (TrsOptionIsValid(best->option[i])) continue;
      *f = (TrsFailure){
          .kind = TRS_FAILURE_KERNEL, .table = best->option[i]->table, .option = best->option[i]};
    }
  } else if (!p->topology.is_cuda && reservation->dense.ddr > p->topology.ddr[0]) {
    *f = lack(TRS_FAILURE_DENSE, PETSC_FALSE, (double)reservation->dense.ddr, (double)p->topology.ddr[0]);
  } else if (s->search.feasible > 0) {
    f->kind = TRS_FAILURE_INFINITE;
  } else if (!s->search.any_failed) {
    f->kind = TRS_FAILURE_NO_PROPOSAL;
  } else {
    find_lack(p, s, f);
  }
}

PetscBool TrsFailureIsMilder(const TrsFailure *a, const TrsFailure *b)
{
  if (a->kind == TRS_FAILURE_NONE || b->kind == TRS_FAILURE_NONE)
    return (PetscBool)(a->kind == TRS_FAILURE_NONE && b->kind != TRS_FAILURE_NONE);
  if (a->kind == TRS_FAILURE_PACKING) return (PetscBool)(b->short_bytes > 0);
  return (PetscBool)(a->short_bytes > 0 && a->short_bytes < b->short_bytes);
}
