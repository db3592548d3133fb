/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/lower_bound.h"

#include <math.h>

enum { PRICE_STEPS = 60, Z_STEPS = 50, ROUNDS = 2 };

/* What the dual needs of an option. */
typedef struct {
  double shard_ms, total_ms, hbm, ddr;
} choice_t;

typedef struct {
  int n_tables;
  const int *first; /* [n_tables + 1] */
  const choice_t *choice;
  double cap_hbm, cap_ddr, world_size;
} dual_t;

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

/* The dual at given prices of memory, over options with shards up to z; the memory used there. HUGE_VAL when a table has no option. */
static double dual_value(const dual_t *d, double z, double price_hbm, double price_ddr, double *hbm,
                         double *ddr)
{
  double sum = -price_hbm * d->cap_hbm - price_ddr * d->cap_ddr;

  *hbm = *ddr = 0;
  for (int t = 0; t < d->n_tables; t++) {
    const choice_t *best = NULL;
    double least = HUGE_VAL;

    for (int i = d->first[t]; i < d->first[t + 1]; i++) {
      const choice_t *c = &d->choice[i];
      double value = c->total_ms + price_hbm * c->hbm + price_ddr * c->ddr;

      if (c->shard_ms <= z && value < least) {
        least = value;
        best = c;
      }
    }
    if (!best) return HUGE_VAL;
    sum += least;
    *hbm += best->hbm;
    *ddr += best->ddr;
  }
  return sum;
}

/* Best price of one kind of memory, the other's being fixed: the dual is concave, and its slope is use - capacity. */
static double best_price(const dual_t *d, double z, PetscBool of_hbm, double other, double highest)
{
  double low = 0, high = highest, hbm, ddr;

  if (dual_value(d, z, of_hbm ? 0 : other, of_hbm ? other : 0, &hbm, &ddr) == HUGE_VAL) return 0;
  if ((of_hbm ? hbm - d->cap_hbm : ddr - d->cap_ddr) <= 0) return 0;
  for (int i = 0; i < PRICE_STEPS; i++) {
    double price = (low + high) / 2;

    dual_value(d, z, of_hbm ? price : other, of_hbm ? other : price, &hbm, &ddr);
    if ((of_hbm ? hbm - d->cap_hbm : ddr - d->cap_ddr) > 0) {
      low = price;
    } else {
      high = price;
    }
  }
  return high;
}

/* Mean load of the devices, at least; any prices give a valid bound, good ones a high one. */
static double mean_load(const dual_t *d, double z, double highest)
{
  double price_hbm = 0, price_ddr = 0, hbm, ddr, value, best;

  best = dual_value(d, z, 0, 0, &hbm, &ddr);
  for (int round = 0; round < ROUNDS && best < HUGE_VAL; round++) {
    price_hbm = best_price(d, z, PETSC_TRUE, price_ddr, highest);
    price_ddr = best_price(d, z, PETSC_FALSE, price_hbm, highest);
    value = dual_value(d, z, price_hbm, price_ddr, &hbm, &ddr);
    best = PetscMax(best, value);
    if (price_ddr == 0) break;
  }
  return best / d->world_size;
}

static PetscErrorCode collect(const TrsSearchSpace *space, int *first, choice_t *choice, double *most_ms)
{
  int n = 0;

  PetscFunctionBegin;
  *most_ms = 0;
  for (int t = 0; t < space->n_tables; t++) {
    first[t] = n;
    for (int i = 0; i < space->table[t].n; i++) {
      const TrsPlanOption *option = &space->option[space->table[t].first + i];
      double shard_ms = TrsShardPathMs(&option->shard_class[0]);

      if (!TrsOptionIsValid(option)) continue;
      choice[n++] = (choice_t){shard_ms, shard_ms * option->n_shards, (double)option->total_storage.hbm,
                               (double)option->total_storage.ddr};
      *most_ms = PetscMax(*most_ms, shard_ms * option->n_shards);
    }
  }
  first[space->n_tables] = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanLowerBound(const TrsCostModel *model, const TrsSearchSpace *space,
                                 const TrsReservation *reservation, double *bound_ms)
{
  dual_t d = {.n_tables = space->n_tables, .world_size = model->topology->world_size};
  double most_ms, low = 0, high;
  choice_t *choice;
  int *first;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(space->n_tables + 1, &first, space->n_options, &choice));
  PetscCall(collect(space, first, choice, &most_ms));
  d.first = first;
  d.choice = choice;
  for (int r = 0; r < model->topology->world_size; r++) {
    d.cap_hbm += (double)PetscMax(0, reservation->left[r].hbm);
    d.cap_ddr += (double)PetscMax(0, reservation->left[r].ddr);
  }
  high = most_ms * space->n_tables; /* a trivial plan's */
  for (int i = 0; i < Z_STEPS && high > low; i++) {
    double z = (low + high) / 2;

    if (mean_load(&d, z, most_ms) >
        z) { /* no plan with so short a path: a price of most_ms a byte outweighs any time */
      low = z;
    } else {
      high = z;
    }
  }
  *bound_ms = low * (1 - 1e-9); /* rounding of the sums */
  PetscCall(PetscFree2(first, choice));
  PetscFunctionReturn(PETSC_SUCCESS);
}
