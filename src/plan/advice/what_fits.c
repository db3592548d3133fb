/* SPDX-License-Identifier: BSD-3-Clause */
/* Without a plan: what is missing, and single changes that would do, each tried by planning. */
#include "core/names.h"
#include "plan/advice/summary.h"
#include "plan/plan_search.h"
#include "plan/report_format.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIB ((int64_t)1 << 30)
#define MIB ((int64_t)1 << 20)
enum { TRS_MOST_TIMES = 64, TRS_BATCH_PARTS = 1024, TRS_CAP_DIGITS = 6 };

/* The problem, and the text about it. */
typedef struct {
  const TrsCostModel *model;
  double end_s; /* by TrsPlanCpuClock() */
  TrsText *text;
  int n_found;
  PetscBool over; /* the time ended before everything was tried */
} TrsChanges;

/* Tell whether there is a plan for the model. Once the time is over, no plan is found. */
static PetscErrorCode try_model(TrsChanges *c, const TrsCostModel *model, PetscBool *fits)
{
  TrsPlanSettings settings = *model->settings;
  TrsCostModel mine = *model;
  TrsReservation reservation = {0};
  TrsSearchSpace space = {0};
  TrsPlanSearch search = {0};
  int table_alone = -1;

  PetscFunctionBegin;
  *fits = PETSC_FALSE;
  if (TrsPlanCpuClock() >= c->end_s) c->over = PETSC_TRUE;
  if (c->over) PetscFunctionReturn(PETSC_SUCCESS);
  settings.timeout_s = c->end_s - TrsPlanCpuClock();
  mine.settings = &settings;
  PetscCall(TrsReserve(&mine, &reservation));
  if (!reservation.too_little) {
    PetscCall(TrsEnumerate(&mine, &space, &table_alone));
    if (table_alone < 0) PetscCall(TrsPlanSearchRun(&mine, &space, &reservation, &search));
    *fits = search.best.found;
  }
  PetscCall(TrsPlanSearchFree(&search));
  PetscCall(TrsSearchSpaceFree(&space));
  PetscCall(TrsReservationFree(&reservation));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_change(TrsChanges *c, const char *change)
{
  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(c->text, "  %-10s %s\n", c->n_found++ ? "or" : "change", change));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where the memory of each rank is given, one option for all changes nothing. */
static PetscBool is_listed(const TrsTopology *t)
{
  return (PetscBool)(t->hbm_listed || t->ddr_listed);
}

/* Try a copy of the tables on other hosts and memory. */
static PetscErrorCode try_machine(TrsChanges *c, int world_size, int local_world_size, int64_t cap,
                                  PetscBool *fits)
{
  TrsTopology topology = *c->model->topology;
  TrsCostModel model = *c->model;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(world_size, &topology.hbm, world_size, &topology.ddr));
  for (int r = 0; r < world_size; r++) {
    topology.hbm[r] = topology.is_cuda ? cap : 0;
    topology.ddr[r] = topology.is_cuda ? c->model->topology->ddr[0] : cap;
  }
  topology.world_size = world_size;
  topology.local_world_size = local_world_size;
  topology.group = topology.pod_size * local_world_size;
  model.topology = &topology;
  PetscCall(try_model(c, &model, fits));
  PetscCall(PetscFree2(topology.hbm, topology.ddr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Try so many ranks for all copies of the tables together. */
static PetscErrorCode try_ranks(TrsChanges *c, int ranks, PetscBool *fits)
{
  const TrsTopology *t = c->model->topology;
  const int world_size = ranks / t->replicas;

  PetscFunctionBegin;
  PetscCall(try_machine(c, world_size,
                        t->replicas == 1 ? t->local_world_size : TrsReplicaHost(t->host_ranks, world_size),
                        t->is_cuda ? t->hbm[0] : t->ddr[0], fits));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the least number of hosts of the same kind, by doubling and halving. Their ranks are a
  multiple of L: of those of a host or pod, and of the copies of the tables.
*/
static PetscErrorCode change_hosts(TrsChanges *c)
{
  const TrsTopology *t = c->model->topology;
  const int host = t->pod_size * t->host_ranks, ranks = t->world_size * t->replicas;
  const int64_t step = (int64_t)(host / TrsReplicaHost(host, t->replicas)) * t->replicas;
  const int L = (int)PetscMin(step, INT_MAX);
  int low = ranks / L, high = low;
  PetscBool fits = PETSC_FALSE;
  char change[160];

  PetscFunctionBegin;
  if (ranks % L || is_listed(t)) PetscFunctionReturn(PETSC_SUCCESS);
  while (!fits && !c->over && high < TRS_MOST_TIMES * (ranks / L)) {
    low = high;
    high *= 2;
    PetscCall(try_ranks(c, high * L, &fits));
  }
  if (!fits) PetscFunctionReturn(PETSC_SUCCESS);
  while (high - low > 1 && !c->over) {
    const int middle = low + (high - low) / 2;

    PetscCall(try_ranks(c, middle * L, &fits));
    if (fits)
      high = middle;
    else
      low = middle;
  }
  snprintf(change, sizeof(change), "-topology_world_size %d -topology_local_world_size %d", high * L,
           t->host_ranks);
  PetscCall(say_change(c, change));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the least memory of each device, in steps of about 1/64 of it. */
static PetscErrorCode change_memory(TrsChanges *c)
{
  const TrsTopology *t = c->model->topology;
  const int64_t now = t->is_cuda ? t->hbm[0] : t->ddr[0], unit = now >= 8 * GIB ? GIB : MIB;
  int64_t low = now / unit, high = PetscMax(1, low);
  PetscBool fits = PETSC_FALSE;
  char change[160];

  PetscFunctionBegin;
  if (is_listed(t)) PetscFunctionReturn(PETSC_SUCCESS);
  for (int64_t times = 2; !fits && !c->over && times <= TRS_MOST_TIMES; times *= 2) {
    low = high;
    high *= 2;
    PetscCall(try_machine(c, t->world_size, t->local_world_size, high * unit, &fits));
  }
  if (!fits) PetscFunctionReturn(PETSC_SUCCESS);
  while (high - low > 1 && high - low > high >> TRS_CAP_DIGITS && !c->over) {
    const int64_t middle = low + (high - low) / 2;

    PetscCall(try_machine(c, t->world_size, t->local_world_size, middle * unit, &fits));
    if (fits)
      high = middle;
    else
      low = middle;
  }
  snprintf(change, sizeof(change), "-topology_%s_cap %" PRId64 "%s", t->is_cuda ? "hbm" : "ddr", high,
           unit == GIB ? "GiB" : "MiB");
  PetscCall(say_change(c, change));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Try tables in half the bytes, and tables without their constraints. */
static PetscErrorCode change_tables(TrsChanges *c)
{
  TrsTableConfigs tables = *c->model->tables;
  TrsCostModel model = *c->model;
  int n_wide = 0, n_bound = 0;
  PetscBool fits;

  PetscFunctionBegin;
  model.tables = &tables;
  PetscCall(PetscMalloc1(tables.n, &tables.table));
  memcpy(tables.table, c->model->tables->table, (size_t)tables.n * sizeof(*tables.table));
  for (int t = 0; t < tables.n; t++) {
    n_wide += tables.table[t].data_type == TRS_FP32;
    if (tables.table[t].data_type == TRS_FP32) tables.table[t].data_type = TRS_FP16;
  }
  if (n_wide && !c->model->settings->is_quant) {
    PetscCall(try_model(c, &model, &fits));
    if (fits) PetscCall(say_change(c, "-tables_data_type fp16"));
  }
  memcpy(tables.table, c->model->tables->table, (size_t)tables.n * sizeof(*tables.table));
  for (int t = 0; t < tables.n; t++) {
    TrsTableConstraints *mine = &tables.table[t].constraints;

    n_bound += mine->sharding_types || mine->compute_kernels;
    mine->sharding_types = mine->compute_kernels = 0;
  }
  if (n_bound) {
    PetscCall(try_model(c, &model, &fits));
    if (fits) PetscCall(say_change(c, "leave out the tables' sharding_types and compute_kernels"));
  }
  PetscCall(PetscFree(tables.table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Try smaller batches, and less reserved device memory. */
static PetscErrorCode change_settings(TrsChanges *c)
{
  TrsPlanSettings settings = *c->model->settings;
  const TrsReservationKind kind = settings.reservation;
  TrsCostModel model = *c->model;
  PetscBool fits = PETSC_FALSE;
  char change[160];

  PetscFunctionBegin;
  model.settings = &settings;
  for (int part = 2; part <= TRS_BATCH_PARTS && settings.batch_size > 1 && !fits; part *= 2) {
    settings.batch_size = PetscMax(1, c->model->settings->batch_size / part);
    PetscCall(try_model(c, &model, &fits));
  }
  snprintf(change, sizeof(change), "-plan_batch_size %" PRId64 " (and -batch_size)", settings.batch_size);
  if (fits) PetscCall(say_change(c, change));
  settings.batch_size = c->model->settings->batch_size;
  if (kind == TRS_RESERVATION_FIXED_ABSOLUTE || kind == TRS_RESERVATION_SKU_AWARE ||
      !c->model->topology->is_cuda || settings.reservation_percentage <= 0)
    PetscFunctionReturn(PETSC_SUCCESS);
  settings.reservation_percentage /= 3;
  PetscCall(try_model(c, &model, &fits));
  snprintf(change, sizeof(change), "-plan_storage_reservation_percentage %.2g",
           settings.reservation_percentage);
  if (fits) PetscCall(say_change(c, change));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Bytes of a table in the option that needs least of the memory that counts. */
static double least_bytes(const TrsCostModel *model, const TrsSearchSpace *space, int t)
{
  const TrsTableOptions *mine = &space->table[t];
  double least = HUGE_VAL;

  for (int i = mine->first; i < mine->first + mine->n; i++) {
    const TrsStorage *storage = &space->option[i].total_storage;

    least = PetscMin(least, (double)(model->topology->is_cuda ? storage->hbm : storage->ddr));
  }
  return least;
}

/* Write that the reservation alone takes more than a device has. */
static PetscErrorCode say_reserved(const TrsCostModel *model, const TrsReservation *reservation,
                                   TrsText *text)
{
  char cap[32], dense[32], kjt[32];

  PetscFunctionBegin;
  TrsGibText((double)model->topology->hbm[0], cap, sizeof(cap));
  TrsGibText((double)reservation->dense.hbm, dense, sizeof(dense));
  TrsGibText((double)reservation->kjt.hbm, kjt, sizeof(kjt));
  PetscCall(TrsTextPrintf(text,
                          "  %-10s nothing is left for tables of %s GiB a device: the dense layers take %s "
                          "GiB, the inputs of a batch %s GiB, %.3g%% are kept free\n",
                          "needs", cap, dense, kjt, 100 * reservation->percentage));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write how much the tables need, how much there is, and the largest tables. */
static PetscErrorCode say_need(const TrsCostModel *model, const TrsReservation *reservation,
                               const TrsSearchSpace *space, TrsText *text)
{
  const PetscBool is_cuda = model->topology->is_cuda;
  double need = 0, left = 0;
  TrsLargest largest = {0};
  const int64_t *cap = is_cuda ? model->topology->hbm : model->topology->ddr;
  int64_t low = cap[0], high = cap[0];
  char a[32], b[32], c[32], d[32];

  PetscFunctionBegin;
  for (int r = 0; r < model->topology->world_size; r++) {
    left += (double)PetscMax(0, is_cuda ? reservation->left[r].hbm : reservation->left[r].ddr);
    low = PetscMin(low, cap[r]);
    high = PetscMax(high, cap[r]);
  }
  for (int t = 0; t < space->n_tables; t++) {
    const double mine = least_bytes(model, space, t);

    need += mine;
    TrsLargestAdd(&largest, space->table[t].table, mine);
  }
  TrsGibText(need, a, sizeof(a));
  TrsGibText(left, b, sizeof(b));
  TrsGibText((double)low, c, sizeof(c));
  TrsGibText((double)high, d, sizeof(d));
  PetscCall(TrsTextPrintf(text,
                          "  %-10s at least %s GiB of %s memory; there are %s GiB, after the reservation, on "
                          "%d rank%s of %s%s%s GiB\n",
                          "needs", a, is_cuda ? "device" : "host", b, model->topology->world_size,
                          TrsPlural(model->topology->world_size, "s"), low < high ? c : "",
                          low < high ? " to " : "", d));
  for (int i = 0; i < largest.n; i++) {
    TrsGibText(largest.value[i], a, sizeof(a));
    PetscCall(TrsTextPrintf(text, i ? ", %s %s GiB" : "  largest    %s %s GiB",
                            model->tables->table[largest.index[i]].name, a));
  }
  PetscCall(TrsTextPrintf(text, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSummaryWriteNoPlan(const TrsCostModel *model, const TrsReservation *reservation,
                                     const TrsSearchSpace *space, const TrsPlanSearch *search, TrsText *text)
{
  TrsChanges c = {
      .model = model, .end_s = TrsPlanCpuClock() + model->settings->advice_s, .text = text, .n_found = 0};
  const char *verdict = search->timed_out ? "was found in -plan_timeout_seconds" : "fits";

  PetscFunctionBegin;
  if (search->proposals == 0 && !reservation->too_little) verdict = "was tried";
  PetscCall(TrsTextPrintf(text, "plan: none: %d table%s on %d rank%s, no plan %s\n", model->tables->n,
                          TrsPlural(model->tables->n, "s"), model->topology->world_size,
                          TrsPlural(model->topology->world_size, "s"), verdict));
  if (reservation->too_little) PetscCall(say_reserved(model, reservation, text));
  if (space->n_tables) PetscCall(say_need(model, reservation, space, text));
  if (model->settings->advice_s <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(change_hosts(&c));
  PetscCall(change_memory(&c));
  PetscCall(change_tables(&c));
  PetscCall(change_settings(&c));
  if (c.n_found)
    PetscCall(TrsTextPrintf(text, "  %-10s %s alone gives a plan: it was tried\n", "",
                            c.n_found == 1 ? "this" : "each of these"));
  if (c.over)
    PetscCall(TrsTextPrintf(text, "  %-10s there was no time to try more: -plan_advice_seconds\n", ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}
