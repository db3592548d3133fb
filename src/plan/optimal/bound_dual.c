/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/optimal/bound_dual.h"

#include "plan/search/plan_search.h"

#include <math.h>
#include <string.h>

enum { TRS_PATIENCE = 4, TRS_MOST_ACTIVE = 4 * (1 + TRS_BOUND_PACKS) };
#define ROUNDING 1e-9
/* A part is not split for a shard that exceeds the bound's count by less than this share of the
   upper bound. */
#define SLIGHT 1e-3

/* A choice's cost and coefficients within one box. */
typedef struct {
  int choice, n; /* n: number of row entries */
  double fixed;
  int row[TRS_BOUND_MEMORY + TRS_MOST_ACTIVE];
  double use[TRS_BOUND_MEMORY + TRS_MOST_ACTIVE];
} TrsActive;

/* One box's dual. Its rows are the parts' means, followed by TRS_BOUND_ROWS. */
enum { TRS_ROWS = TRS_BOUND_PARTS + TRS_BOUND_ROWS };
typedef struct {
  int *first; /* [n_tables + 1] indices into active */
  TrsActive *active;
  const TrsActive **best;       /* [n_tables] choice with the least value */
  double lambda[TRS_ROWS];      /* ms; a part's weight times the upper bound */
  double slope[TRS_ROWS];       /* the dual's slope */
  double kept[TRS_ROWS], bound; /* best multipliers and bound so far */
} TrsDual;

/* u(k) by Fekete and Schepers. If the x add up to at most 1, so do their u(k). */
static double pack(double x, int k)
{
  double y = x * (k + 1), whole = floor(y + ROUNDING);

  if (x >= 1) return 1;
  return fabs(y - whole) <= 2 * ROUNDING ? x : whole / k;
}

static PetscErrorCode number_parts(const TrsSearchSpace *space, int *number, int *n_parts)
{
  PetscFunctionBegin;
  for (int p = 0; p < TRS_BOUND_PARTS; p++) number[p] = -1;
  number[0] = 0;
  number[1] = 1;
  *n_parts = 2;
  for (int i = 0; i < space->n_options; i++) {
    const TrsPlanOption *option = &space->option[i];
    int exchange = 2 + 2 * ((int)option->module * TRS_N_SHARDINGS + (int)option->type);

    if (option->partition_by == TRS_PARTITION_UNIFORM || number[exchange] >= 0) continue;
    number[exchange] = (*n_parts)++;
    number[exchange + 1] = (*n_parts)++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of an option's shards that some rank must hold, whatever the placement. */
static int meeting(const TrsTopology *topology, const TrsPlanOption *option)
{
  int hosts = PetscMax(1, topology->world_size / topology->group), n = option->n_shards, places;

  if (option->partition_by == TRS_PARTITION_DEVICE) {
    places = topology->world_size;
  } else if (option->type == TRS_SHARDING_TABLE_COLUMN_WISE) {
    places = topology->group;
  } else {
    places = option->type == TRS_SHARDING_GRID_SHARD ? hosts * topology->group : topology->group;
  }
  return (n + places - 1) / places;
}

static void fill_choice(const TrsTopology *topology, const TrsPlanOption *option, const int *number,
                        TrsBoundChoice *c)
{
  const TrsPerf *perf = &option->shard_class[0].perf;
  int exchange = 2 + 2 * ((int)option->module * TRS_N_SHARDINGS + (int)option->type);
  const int part[4] = {0, 1, exchange, exchange + 1};
  const double ms[4] = {perf->fwd_compute, perf->bwd_compute, perf->fwd_comms, perf->bwd_comms};

  *c = (TrsBoundChoice){.option = option, .n_shards = option->n_shards};
  for (int k = 0; k < 4; k++) {
    if (option->partition_by == TRS_PARTITION_UNIFORM) {
      c->fixed += ms[k];
    } else if (ms[k] > 0) {
      c->part[c->n_parts] = number[part[k]];
      c->ms[c->n_parts] = ms[k];
      c->longest[c->n_parts] = ms[k] * meeting(topology, option);
      c->mean[c->n_parts++] = ms[k] * option->n_shards / topology->world_size;
    }
  }
}

/* Fill in the memory rows: sums over all devices, and the shards' packing into a device. */
static void fill_memory(const TrsPlanOption *option, const TrsStorage *room, double cap_hbm, double cap_ddr,
                        int world_size, TrsBoundChoice *c)
{
  c->memory[0] = cap_hbm > 0 ? (double)option->total_storage.hbm / cap_hbm : 0;
  c->memory[1] = cap_ddr > 0 ? (double)option->total_storage.ddr / cap_ddr : 0;
  for (int i = 0; i < option->n_classes && room->hbm > 0; i++) {
    double x = (double)option->shard_class[i].storage.hbm / (double)room->hbm;
    double n = TrsOptionClassShards(option, i);

    for (int k = 1; k <= TRS_BOUND_MEMORY - 2; k++) c->memory[1 + k] += n * pack(x, k) / world_size;
  }
}

PetscErrorCode TrsBoundProblemCreate(const TrsTopology *topology, const TrsSearchSpace *space,
                                     const TrsReservation *reservation, double upper_ms, double end_s,
                                     TrsBoundProblem *problem)
{
  TrsStorage room = reservation->left[0]; /* the most memory left on a device */
  double cap_hbm = 0, cap_ddr = 0;
  int number[TRS_BOUND_PARTS], n = 0;

  PetscFunctionBegin;
  *problem = (TrsBoundProblem){
      .n_tables = space->n_tables, .world_size = topology->world_size, .upper_ms = upper_ms, .end_s = end_s};
  PetscCall(number_parts(space, number, &problem->n_parts));
  for (int r = 0; r < topology->world_size; r++) {
    cap_hbm += (double)PetscMax(0, reservation->left[r].hbm);
    cap_ddr += (double)PetscMax(0, reservation->left[r].ddr);
    room.hbm = PetscMax(room.hbm, reservation->left[r].hbm);
    room.ddr = PetscMax(room.ddr, reservation->left[r].ddr);
  }
  PetscCall(PetscMalloc2(space->n_tables + 1, &problem->first, space->n_options, &problem->choice));
  for (int t = 0; t < space->n_tables; t++) {
    problem->first[t] = n;
    for (int i = space->table[t].first; i < space->table[t].first + space->table[t].n; i++) {
      const TrsPlanOption *option = &space->option[i];

      if (!TrsOptionIsValid(option) || option->max_hbm > room.hbm || option->max_ddr > room.ddr) continue;
      fill_choice(topology, option, number, &problem->choice[n]);
      fill_memory(option, &room, cap_hbm, cap_ddr, topology->world_size, &problem->choice[n++]);
    }
  }
  problem->first[space->n_tables] = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBoundProblemFree(TrsBoundProblem *problem)
{
  PetscFunctionBegin;
  PetscCall(PetscFree2(problem->first, problem->choice));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool is_in(const TrsBoundBox *box, int i, const TrsBoundChoice *c)
{
  if (box->excluded[i / 64] >> (i % 64) & 1) return PETSC_FALSE;
  for (int k = 0; k < c->n_parts; k++) {
    if (c->longest[k] > box->hi[c->part[k]] * (1 + ROUNDING)) return PETSC_FALSE;
  }
  return PETSC_TRUE;
}

static void see(const TrsBoundProblem *p, const TrsBoundBox *box, int i, TrsActive *a)
{
  const TrsBoundChoice *c = &p->choice[i];

  *a = (TrsActive){.choice = i, .fixed = c->fixed};
  for (int k = 0; k < TRS_BOUND_MEMORY; k++) {
    if (c->memory[k] <= 0) continue;
    a->row[a->n] = TRS_BOUND_PARTS + k;
    a->use[a->n++] = c->memory[k];
  }
  for (int k = 0; k < c->n_parts; k++) {
    int part = c->part[k];

    a->row[a->n] = part;
    a->use[a->n++] = c->mean[k] / p->upper_ms;
    for (int u = 1; u <= TRS_BOUND_PACKS; u++) {
      double x = pack(c->ms[k] / box->hi[part], u);

      if (x <= 0) continue;
      a->row[a->n] = TRS_BOUND_PARTS + TRS_BOUND_MEMORY + TRS_BOUND_PACKS * part + u - 1;
      a->use[a->n++] = x * c->n_shards / p->world_size;
    }
  }
}

/* Collect the box's choices. Returns false if a table has no choice. */
static PetscBool collect(const TrsBoundProblem *p, TrsBoundBox *box, TrsDual *d)
{
  int n = 0;

  for (int t = 0; t < p->n_tables; t++) {
    d->first[t] = n;
    for (int i = p->first[t]; i < p->first[t + 1]; i++) {
      if (is_in(box, i, &p->choice[i])) {
        see(p, box, i, &d->active[n++]);
      } else {
        box->excluded[i / 64] |= UINT64_C(1) << (i % 64);
      }
    }
    if (n == d->first[t]) return PETSC_FALSE;
  }
  d->first[p->n_tables] = n;
  return PETSC_TRUE;
}

static double value_of(const TrsDual *d, const TrsActive *a)
{
  double value = a->fixed;

  for (int k = 0; k < a->n; k++) value += d->lambda[a->row[k]] * a->use[k];
  return value;
}

/* Evaluate the dual and its slope at lambda. */
static double evaluate(const TrsBoundProblem *p, const TrsBoundBox *box, TrsDual *d)
{
  double sum = 0;

  /* A capacity that is used to the last byte counts as not exhausted. Otherwise a rounding error's
     slope of 1e-16 would make its multiplier grow without bound. */
  for (int j = 0; j < TRS_ROWS; j++) {
    d->slope[j] = j >= TRS_BOUND_PARTS ? -(1 + ROUNDING) : (j < p->n_parts ? -box->lo[j] / p->upper_ms : 0);
    sum += d->lambda[j] * d->slope[j];
  }
  for (int q = 0; q < p->n_parts; q++) sum += box->lo[q];
  for (int t = 0; t < p->n_tables; t++) {
    double least = HUGE_VAL;

    for (int i = d->first[t]; i < d->first[t + 1]; i++) {
      double value = value_of(d, &d->active[i]);

      if (value < least) {
        least = value;
        d->best[t] = &d->active[i];
      }
    }
    sum += least;
    for (int k = 0; k < d->best[t]->n; k++) d->slope[d->best[t]->row[k]] += d->best[t]->use[k];
  }
  return sum;
}

/* Make one step along the slope, within the multipliers' limits. */
static void step(const TrsBoundProblem *p, TrsDual *d, double length)
{
  double norm = 0;

  for (int j = 0; j < TRS_ROWS; j++) {
    if (d->lambda[j] <= 0 && d->slope[j] < 0) d->slope[j] = 0;
    if (j < TRS_BOUND_PARTS && d->lambda[j] >= p->upper_ms && d->slope[j] > 0) d->slope[j] = 0;
    norm += d->slope[j] * d->slope[j];
  }
  if (norm <= 0) return;
  for (int j = 0; j < TRS_ROWS; j++) {
    d->lambda[j] = PetscMax(0, d->lambda[j] + length / norm * d->slope[j]);
    if (j < TRS_BOUND_PARTS) d->lambda[j] = PetscMin(d->lambda[j], p->upper_ms);
  }
}

static void climb(const TrsBoundProblem *p, const TrsBoundBox *box, int n_steps, TrsDual *d)
{
  double relax = 1;
  int waiting = 0;

  d->bound = -HUGE_VAL;
  for (int i = 0; i < n_steps && (i == 0 || TrsPlanCpuClock() < p->end_s); i++) {
    double value = evaluate(p, box, d);

    if (value > d->bound) {
      if (value < d->bound + 1e-4 * p->upper_ms)
        waiting++;
      else
        waiting = 0;
      d->bound = value;
      memcpy(d->kept, d->lambda, sizeof(d->kept));
    } else {
      waiting++;
    }
    if (value >= p->upper_ms) return;
    if (waiting > TRS_PATIENCE) {
      relax /= 2;
      waiting = 0;
      memcpy(d->lambda, d->kept, sizeof(d->kept));
      evaluate(p, box, d);
    }
    step(p, d, relax * 1.02 * (p->upper_ms - PetscMin(value, p->upper_ms * 0.999)));
  }
}

/* Exclude choices that cost more than a plan below the upper bound can afford. */
static void exclude(const TrsBoundProblem *p, const TrsDual *d, TrsBoundBox *box)
{
  for (int t = 0; t < p->n_tables; t++) {
    double least = value_of(d, d->best[t]);

    for (int i = d->first[t]; i < d->first[t + 1]; i++) {
      int c = d->active[i].choice;

      if (d->bound + value_of(d, &d->active[i]) - least > p->upper_ms * (1 + ROUNDING))
        box->excluded[c / 64] |= UINT64_C(1) << (c % 64);
    }
  }
}

/*
  Find the part to split, and the value to split it at. Choose the part in which the longest shard
  of the best choices exceeds the bound's count by most, and split halfway between the two. If there
  is no such part, choose the part with the largest gap between hi and the bound's count, and split
  near the count.
*/
static void find_split(const TrsBoundProblem *p, const TrsDual *d, TrsBoundBox *box)
{
  double longest[TRS_BOUND_PARTS] = {0}, most = SLIGHT * p->upper_ms;

  box->part = -1;
  for (int t = 0; t < p->n_tables; t++) {
    const TrsBoundChoice *c = &p->choice[d->best[t]->choice];

    for (int k = 0; k < c->n_parts; k++) longest[c->part[k]] = PetscMax(longest[c->part[k]], c->longest[k]);
  }
  for (int pass = 0; pass < 2 && box->part < 0; pass++) {
    for (int q = 0; q < p->n_parts; q++) {
      double counted = PetscMax(box->lo[q], d->slope[q] * p->upper_ms + box->lo[q]);
      double excess = (pass == 0 ? longest[q] : box->hi[q]) - counted;

      if (excess <= most || (pass == 1 && longest[q] <= 0)) continue;
      most = excess;
      box->part = q;
      box->at = counted + (pass == 0 ? 0.5 : 0.25) * excess;
    }
  }
}

PetscErrorCode TrsBoundRaise(const TrsBoundProblem *p, int n_steps, TrsBoundBox *box,
                             const TrsPlanOption **wanted, int64_t *work)
{
  int n = p->first[p->n_tables];
  TrsDual d;

  PetscFunctionBegin;
  PetscCall(PetscMalloc3(p->n_tables + 1, &d.first, n, &d.active, p->n_tables, &d.best));
  box->part = -1;
  *work = n;
  if (!collect(p, box, &d)) {
    box->bound_ms = HUGE_VAL;
  } else {
    memset(d.lambda, 0, sizeof(d.lambda));
    memcpy(d.lambda, box->weight, sizeof(box->weight));
    memcpy(d.lambda + TRS_BOUND_PARTS, box->price, sizeof(box->price));
    climb(p, box, n_steps, &d);
    *work += (int64_t)n_steps * d.first[p->n_tables];
    memcpy(d.lambda, d.kept, sizeof(d.kept));
    evaluate(p, box, &d);
    memcpy(box->weight, d.kept, sizeof(box->weight));
    memcpy(box->price, d.kept + TRS_BOUND_PARTS, sizeof(box->price));
    box->bound_ms = PetscMax(box->bound_ms, d.bound);
    for (int t = 0; t < p->n_tables && wanted; t++) wanted[t] = p->choice[d.best[t]->choice].option;
    exclude(p, &d, box);
    find_split(p, &d, box);
  }
  PetscCall(PetscFree3(d.first, d.active, d.best));
  PetscFunctionReturn(PETSC_SUCCESS);
}
