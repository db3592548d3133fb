/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/lower_bound.h"

#include <math.h>

enum {
  TRS_PRICE_STEPS = 60,
  TRS_ROUNDS = 2,
  TRS_FINE_MESH = 64,
  TRS_COARSE_MESH = 16,
  TRS_MANY_OPTIONS = 20000
};

/* What the dual needs of an option: ms of a shard, and sums over its shards. */
typedef struct {
  double shard_compute, shard_comms, compute, comms, hbm, ddr;
} TrsChoice;

typedef struct {
  int n_tables;
  const int *first; /* [n_tables + 1] */
  const TrsChoice *choice;
  double cap_hbm, cap_ddr, world_size;
} TrsDual;

/* Which choices a plan has, which part of them counts, and prices of memory in ms a byte. */
typedef struct {
  double longest_compute, longest_comms; /* of a shard */
  double weight_compute, weight_comms;   /* 0 or 1 */
  double price_hbm, price_ddr;
} TrsCase;

PetscBool TrsOptionIsValid(const TrsPlanOption *option)
{
  if (TrsKernelIsCaching(option->kernel) && option->has_load_factor &&
      !(option->load_factor > 0 && option->load_factor < 1))
    return PETSC_FALSE;
  for (int k = 0; k < option->n_classes; k++) {
    if (option->shard_class[k].storage.hbm < 0 || option->shard_class[k].storage.ddr < 0) return PETSC_FALSE;
  }
  return PETSC_TRUE;
}

/* The dual: a lower bound of the weighted sum over tables; the memory used there. HUGE_VAL when a table has no choice. */
static double dual_value(const TrsDual *d, const TrsCase *c, double *hbm, double *ddr)
{
  double sum = -c->price_hbm * d->cap_hbm - c->price_ddr * d->cap_ddr;

  *hbm = *ddr = 0;
  for (int t = 0; t < d->n_tables; t++) {
    const TrsChoice *best = NULL;
    double least = HUGE_VAL;

    for (int i = d->first[t]; i < d->first[t + 1]; i++) {
      const TrsChoice *o = &d->choice[i];
      double value = c->weight_compute * o->compute + c->weight_comms * o->comms + c->price_hbm * o->hbm +
                     c->price_ddr * o->ddr;

      if (o->shard_compute <= c->longest_compute && o->shard_comms <= c->longest_comms && value < least) {
        least = value;
        best = o;
      }
    }
    if (!best) return HUGE_VAL;
    sum += least;
    *hbm += best->hbm;
    *ddr += best->ddr;
  }
  return sum;
}

/* Improve one price, the other being fixed: the dual is concave, and its slope is use - capacity. */
static void improve_price(const TrsDual *d, TrsCase *c, double *price, double highest)
{
  double low = 0, high = highest, hbm, ddr;

  *price = 0;
  if (dual_value(d, c, &hbm, &ddr) >= HUGE_VAL) return;
  if ((price == &c->price_hbm ? hbm - d->cap_hbm : ddr - d->cap_ddr) <= 0) return;
  for (int i = 0; i < TRS_PRICE_STEPS; i++) {
    *price = (low + high) / 2;
    dual_value(d, c, &hbm, &ddr);
    if ((price == &c->price_hbm ? hbm - d->cap_hbm : ddr - d->cap_ddr) > 0) {
      low = *price;
    } else {
      high = *price;
    }
  }
  *price = high;
}

static void find_prices(const TrsDual *d, TrsCase *c, double highest)
{
  for (int round = 0; round < TRS_ROUNDS; round++) {
    improve_price(d, c, &c->price_hbm, highest);
    improve_price(d, c, &c->price_ddr, highest);
    if (c->price_ddr == 0) break;
  }
}

/* Longest compute (or comms) that some shard of every plan reaches: each table's least, the largest of them. */
static void find_floor(const TrsDual *d, double *compute, double *comms)
{
  *compute = *comms = 0;
  for (int t = 0; t < d->n_tables; t++) {
    double least_compute = HUGE_VAL, least_comms = HUGE_VAL;

    for (int i = d->first[t]; i < d->first[t + 1]; i++) {
      least_compute = PetscMin(least_compute, d->choice[i].shard_compute);
      least_comms = PetscMin(least_comms, d->choice[i].shard_comms);
    }
    *compute = PetscMax(*compute, least_compute);
    *comms = PetscMax(*comms, least_comms);
  }
}

/* Edge i of n: from the floor to the end, each part longer than the one before by the same factor. */
static double edge(double floor_ms, double end, int i, int n)
{
  double from = PetscMax(floor_ms, end * 1e-4);

  if (i == 0) return floor_ms;
  return i == n ? end : from * pow(end / from, (double)i / n);
}

/* Lower bound of the plans whose longest compute and comms are in one part of the mesh; may stop at `enough`. */
static double bound_part(const TrsDual *d, const TrsCase mean[3], double compute, double comms,
                         const TrsCase *limits, double enough)
{
  const double longest[3] = {comms, compute, 0}; /* beside the mean of compute, of comms, of both */
  double bound = compute + comms, hbm, ddr;

  for (int k = 2; k >= 0 && bound < enough; k--) {
    TrsCase c = mean[k];
    double value;

    c.longest_compute = limits->longest_compute;
    c.longest_comms = limits->longest_comms;
    value = longest[k] + dual_value(d, &c, &hbm, &ddr) / d->world_size;
    bound = PetscMax(bound, value);
  }
  return bound;
}

static double bound_mesh(const TrsDual *d, int n, double upper_ms, double most_ms)
{
  double compute, comms, least = upper_ms;

  find_floor(d, &compute, &comms);
  for (int i = 0; i < n; i++) {
    double from_compute = edge(compute, upper_ms, i, n), to_compute = edge(compute, upper_ms, i + 1, n);
    TrsCase mean[3] = {{to_compute, HUGE_VAL, 1, 0, 0, 0},
                       {to_compute, HUGE_VAL, 0, 1, 0, 0},
                       {to_compute, HUGE_VAL, 1, 1, 0, 0}};

    for (int k = 0; k < 3; k++) find_prices(d, &mean[k], most_ms);
    for (int j = 0; j < n && from_compute + edge(comms, upper_ms, j, n) < least; j++) {
      TrsCase limits = {.longest_compute = to_compute, .longest_comms = edge(comms, upper_ms, j + 1, n)};

      least = PetscMin(least, bound_part(d, mean, from_compute, edge(comms, upper_ms, j, n), &limits, least));
    }
  }
  return least;
}

/* Options that no plan can have are left out: invalid ones, and those with a shard that no device has room for. */
static void collect(const TrsSearchSpace *space, const TrsStorage *room, int *first, TrsChoice *choice,
                    double *most_ms)
{
  int n = 0;

  *most_ms = 0;
  for (int t = 0; t < space->n_tables; t++) {
    double most = 0;

    first[t] = n;
    for (int i = 0; i < space->table[t].n; i++) {
      const TrsPlanOption *option = &space->option[space->table[t].first + i];
      const TrsPerf *perf = &option->shard_class[0].perf;
      double compute = perf->fwd_compute + perf->bwd_compute, comms = perf->fwd_comms + perf->bwd_comms;

      if (!TrsOptionIsValid(option) || option->max_hbm > room->hbm || option->max_ddr > room->ddr) continue;
      choice[n++] = (TrsChoice){compute,
                                comms,
                                compute * option->n_shards,
                                comms * option->n_shards,
                                (double)option->total_storage.hbm,
                                (double)option->total_storage.ddr};
      most = PetscMax(most, (compute + comms) * option->n_shards);
    }
    *most_ms += most;
  }
  first[space->n_tables] = n;
}

PetscErrorCode TrsPlanLowerBound(const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, double upper_ms, double *bound_ms)
{
  TrsDual d = {.n_tables = space->n_tables, .world_size = model->topology->world_size};
  TrsStorage room = reservation->left[0]; /* on the richest device */
  double most_ms;
  TrsChoice *choice;
  int *first;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(space->n_tables + 1, &first, space->n_options, &choice));
  d.first = first;
  d.choice = choice;
  for (int r = 0; r < model->topology->world_size; r++) {
    d.cap_hbm += (double)PetscMax(0, reservation->left[r].hbm);
    d.cap_ddr += (double)PetscMax(0, reservation->left[r].ddr);
    room.hbm = PetscMax(room.hbm, reservation->left[r].hbm);
    room.ddr = PetscMax(room.ddr, reservation->left[r].ddr);
  }
  collect(space, &room, first, choice, &most_ms);
  *bound_ms = bound_mesh(&d, space->n_options > TRS_MANY_OPTIONS ? TRS_COARSE_MESH : TRS_FINE_MESH,
                         PetscMin(upper_ms, most_ms), most_ms) *
              (1 - 1e-9); /* rounding of the sums */
  PetscCall(PetscFree2(first, choice));
  PetscFunctionReturn(PETSC_SUCCESS);
}
