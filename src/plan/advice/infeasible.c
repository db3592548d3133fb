/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/advice/infeasible.h"

#include "core/names.h"
#include "plan/optimal/lower_bound.h"

#include <inttypes.h>

#define GIB 1073741824.0

const char *TrsPlanErrorName(TrsPlanError error)
{
  static const char *const names[] = {"NONE", "INSUFFICIENT_STORAGE", "STRICT_CONSTRAINTS",
                                      "INVALID_COMPUTE_KERNEL", "OTHER"};

  return names[error];
}

static const TrsPlanOption *find_invalid(const TrsProposal *proposal)
{
  for (int i = 0; i < proposal->n; i++) {
    if (!TrsOptionIsValid(proposal->option[i])) return proposal->option[i];
  }
  return NULL;
}

static PetscErrorCode say_reservation(const TrsCostModel *model, const TrsReservation *reservation,
                                      TrsText *message)
{
  int64_t cap = model->topology->hbm[0], left = reservation->left[0].hbm;

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(message,
                          "the reservation leaves no device memory for tables: of %" PRId64
                          " bytes a device, %.1f%% are kept, the dense model takes %" PRId64
                          " and inputs take %" PRId64 ": short by %" PRId64
                          " bytes. Relax: -topology_hbm_cap%s, -plan_storage_reservation_percentage, "
                          "-plan_dense_tensor_estimate, -plan_parameter_multiplier, -plan_batch_size",
                          cap, 100 * reservation->percentage, reservation->dense.hbm, reservation->kjt.hbm,
                          left < 0 ? -left : 1 - left, model->topology->hbm_listed ? "_per_rank" : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The dense layers alone leave no host memory. */
static PetscErrorCode say_dense(const TrsCostModel *model, const TrsReservation *reservation,
                                TrsText *message)
{
  const int64_t cap = model->topology->ddr[0], dense = reservation->dense.ddr;

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(message,
                          "the dense layers leave no memory for tables: of %" PRId64
                          " bytes a rank, they take %" PRId64 " (%.2f GiB), their gradients and states among "
                          "them: short by %" PRId64
                          " bytes. Relax: smaller -dense_arch or -over_arch, fewer ranks a host, "
                          "-topology_ddr_cap, -plan_parameter_multiplier",
                          cap, dense, (double)dense / GIB, dense - cap));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_no_option(const TrsCostModel *model, int t, TrsText *message)
{
  const TrsTableConfig *table = &model->tables->table[t];
  const TrsShardingType *types;
  const int n = TrsSharderTypes(model, table, &types);

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(
      message,
      "table \"%s\" (%s, %s) has no sharding option left: its sharding_types and compute_kernels "
      "exclude each other or are not available on %s. The types of such tables are",
      table->name, TrsModuleName(TrsTableModule(table)), model->settings->is_quant ? "quantised" : "trained",
      model->topology->is_cuda ? "cuda" : "cpu"));
  for (int i = 0; i < n; i++)
    PetscCall(TrsTextPrintf(message, "%s %s", i ? "," : "", TrsShardingTypeName(types[i])));
  PetscCall(TrsTextPrintf(message, ". Relax: -table_%s_sharding_types, -table_%s_compute_kernels",
                          TrsTableOptionName(table), TrsTableOptionName(table)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Bytes by which an option's largest shard exceeds the richest device, or 0 if it fits. */
static int64_t shortage(const TrsPlanOption *option, const TrsStorage *most)
{
  return PetscMax(0, option->max_hbm - most->hbm) + PetscMax(0, option->max_ddr - most->ddr);
}

typedef struct {
  TrsStorage most;            /* left on the richest device */
  TrsInt128 sum_hbm, sum_ddr; /* left on all devices */
  /* Needs of all tables, each with the option that needs least device memory. */
  TrsInt128 need_hbm, need_ddr;
  /* The table (by its index in the space) that exceeds every device by the most bytes, or -1. */
  int worst;
  const TrsPlanOption *worst_option;
  int64_t worst_bytes;
  int largest_hbm, largest_ddr; /* tables, by index, that need the most, even with that option */
  int64_t most_hbm, most_ddr;
} TrsAnalysis;

static void analyse(const TrsCostModel *model, const TrsReservation *reservation, const TrsSearchSpace *space,
                    TrsAnalysis *a)
{
  *a = (TrsAnalysis){.most = reservation->left[0], .worst = -1, .most_hbm = -1, .most_ddr = -1};
  for (int r = 0; r < model->topology->world_size; r++) {
    a->most.hbm = PetscMax(a->most.hbm, reservation->left[r].hbm);
    a->most.ddr = PetscMax(a->most.ddr, reservation->left[r].ddr);
    a->sum_hbm += reservation->left[r].hbm;
    a->sum_ddr += reservation->left[r].ddr;
  }
  for (int t = 0; t < space->n_tables; t++) {
    const TrsPlanOption *closest = &space->option[space->table[t].first], *least = closest;

    for (int i = 1; i < space->table[t].n; i++) {
      const TrsPlanOption *option = &space->option[space->table[t].first + i];

      if (shortage(option, &a->most) < shortage(closest, &a->most)) closest = option;
      if (option->total_storage.hbm < least->total_storage.hbm ||
          (option->total_storage.hbm == least->total_storage.hbm &&
           option->total_storage.ddr < least->total_storage.ddr))
        least = option;
    }
    a->need_hbm += least->total_storage.hbm;
    a->need_ddr += least->total_storage.ddr;
    if (least->total_storage.hbm > a->most_hbm) {
      a->largest_hbm = t;
      a->most_hbm = least->total_storage.hbm;
    }
    if (least->total_storage.ddr > a->most_ddr) {
      a->largest_ddr = t;
      a->most_ddr = least->total_storage.ddr;
    }
    if (shortage(closest, &a->most) > a->worst_bytes) {
      a->worst = t;
      a->worst_option = closest;
      a->worst_bytes = shortage(closest, &a->most);
    }
  }
}

/* The option that sets how much of a device's memory is reserved, or NULL. */
static const char *reservation_option(const TrsPlanSettings *settings)
{
  switch (settings->reservation) {
  case TRS_RESERVATION_FIXED_ABSOLUTE: return "-plan_storage_reservation_bytes";
  case TRS_RESERVATION_SKU_AWARE: return "-plan_storage_reservation_runtime_overhead";
  case TRS_RESERVATION_HEURISTICAL:
  case TRS_RESERVATION_FIXED_PERCENTAGE:
  case TRS_RESERVATION_INFERENCE: break;
  }
  return settings->reservation_percentage > 0 ? "-plan_storage_reservation_percentage" : NULL;
}

/* How many times its rows a table takes, with the states of its optimizer. */
static double copies_of_rows(const TrsCostModel *model, const TrsTableConfig *table)
{
  switch (TrsPlanOptimizerState(model->settings, table)) {
  case TRS_STATE_NONE: break;
  case TRS_STATE_ROWWISE: return 1.0 + 1.0 / (double)table->embedding_dim;
  case TRS_STATE_ONE: return 2.0;
  case TRS_STATE_TWO: return 3.0;
  }
  return 1.0;
}

/* Bytes of a table's rows and states. */
static double table_bytes(const TrsCostModel *model, const TrsTableConfig *table)
{
  return copies_of_rows(model, table) * (double)table->num_embeddings * (double)table->embedding_dim *
         TrsDTypeBits(table->data_type) / 8.0;
}

/*
  Tell whether most of the need beside `tables` bytes of tables is for batches, so that another data
  type would not help.
*/
static PetscBool is_for_batches(const TrsCostModel *model, const TrsReservation *reservation, double need,
                                double tables)
{
  const double inputs = (double)reservation->kjt.hbm + (double)reservation->kjt.ddr;

  return (PetscBool)(need - tables + inputs * model->topology->world_size > tables);
}

/*
  Name the options that would give more of the memory that is short, or that would make table t need
  less of it.
*/
static PetscErrorCode say_relax(const TrsCostModel *model, int t, PetscBool for_batches, PetscBool short_hbm,
                                PetscBool short_ddr, TrsText *message)
{
  const TrsTableConfig *table = &model->tables->table[t];
  const char *reserved = reservation_option(model->settings);
  unsigned kernels = table->constraints.compute_kernels;
  PetscBool uvm = (PetscBool)(model->topology->is_cuda && !model->settings->is_quant);

  PetscFunctionBegin;
  if (for_batches) {
    PetscCall(TrsTextPrintf(message,
                            ". Most of it is for batches of %" PRId64
                            " samples a rank, not for tables. Relax: -batch_size (or -plan_batch_size)",
                            model->settings->batch_size));
  } else {
    PetscCall(
        TrsTextPrintf(message, ". Relax: -plan_batch_size, -table_%s_data_type", TrsTableOptionName(table)));
    if (copies_of_rows(model, table) >= 2.0) {
      if (table->constraints.has_optimizer)
        PetscCall(TrsTextPrintf(message, ", -table_%s_optimizer", TrsTableOptionName(table)));
      else
        PetscCall(TrsTextPrintf(message, ", -embedding_optimizer"));
      PetscCall(TrsTextPrintf(message, " (rowwise_adagrad keeps one number a row)"));
    }
  }
  PetscCall(TrsTextPrintf(message, ", -topology_world_size%s",
                          model->topology->replicas > 1 ? ", -plan_replicas" : ""));
  if (short_hbm)
    PetscCall(
        TrsTextPrintf(message, ", -topology_hbm_cap%s", model->topology->hbm_listed ? "_per_rank" : ""));
  if (short_hbm && reserved) PetscCall(TrsTextPrintf(message, ", %s", reserved));
  if (short_ddr)
    PetscCall(
        TrsTextPrintf(message, ", -topology_ddr_cap%s", model->topology->ddr_listed ? "_per_rank" : ""));
  if (table->constraints.sharding_types)
    PetscCall(TrsTextPrintf(message, ", -table_%s_sharding_types (more of them)", TrsTableOptionName(table)));
  if (uvm && short_hbm && kernels && !((kernels >> TRS_KERNEL_FUSED_UVM) & 1u))
    PetscCall(TrsTextPrintf(message, ", -table_%s_compute_kernels (fused_uvm_caching, fused_uvm)",
                            TrsTableOptionName(table)));
  if (uvm && short_ddr && kernels && !((kernels >> TRS_KERNEL_FUSED) & 1u))
    PetscCall(TrsTextPrintf(message, ", -table_%s_compute_kernels (fused)", TrsTableOptionName(table)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The proposals that were made are not all that there are. */
static PetscErrorCode say_time(const TrsPlanSearch *search, const TrsAnalysis *a, TrsText *message)
{
  PetscFunctionBegin;
  if (search->timed_out && !search->no_plan_proven && a->need_hbm <= a->sum_hbm)
    PetscCall(TrsTextPrintf(message,
                            ". -plan_timeout_seconds ended the search: with more time it may find a plan"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_storage(const TrsCostModel *model, const TrsReservation *reservation,
                                  const TrsSearchSpace *space, const TrsAnalysis *a,
                                  const TrsPlanSearch *search, TrsText *message)
{
  PetscBool by_hbm = (PetscBool)(search->lowest_hbm > a->sum_hbm);
  TrsInt128 need = by_hbm ? search->lowest_hbm : search->lowest_ddr, have = by_hbm ? a->sum_hbm : a->sum_ddr;
  int largest = space->table[by_hbm ? a->largest_hbm : a->largest_ddr].table;
  double tables = 0;

  PetscFunctionBegin;
  for (int t = 0; t < space->n_tables; t++)
    tables += table_bytes(model, &model->tables->table[space->table[t].table]);
  PetscCall(TrsTextPrintf(
      message,
      "the tables need at least %.0f bytes (%.2f GiB) of %s memory in the least demanding of %" PRId64
      " proposal%s, but all %d device%s together have %.0f (%.2f GiB) after the reservation: short by %.0f "
      "bytes. Table \"%s\" needs most",
      (double)need, (double)need / GIB, by_hbm ? "device" : "host", search->partitioned,
      TrsPlural(search->partitioned, "s"), model->topology->world_size,
      TrsPlural(model->topology->world_size, "s"), (double)have, (double)have / GIB, (double)(need - have),
      model->tables->table[largest].name));
  PetscCall(say_relax(model, largest, is_for_batches(model, reservation, (double)need, tables), by_hbm,
                      (PetscBool)(search->lowest_ddr > a->sum_ddr), message));
  PetscCall(say_time(search, a, message));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_strict(const TrsCostModel *model, const TrsReservation *reservation,
                                 const TrsSearchSpace *space, const TrsAnalysis *a,
                                 const TrsPlanSearch *search, TrsText *message)
{
  PetscBool is_cuda = model->topology->is_cuda;
  int largest = space->table[is_cuda ? a->largest_hbm : a->largest_ddr].table;

  PetscFunctionBegin;
  if (a->worst >= 0) {
    const TrsPlanOption *option = a->worst_option;
    const char *name = model->tables->table[option->table].name;

    PetscCall(TrsTextPrintf(message,
                            "table \"%s\" fits on no device: even as %s/%s a shard needs %" PRId64
                            " bytes of device and %" PRId64
                            " of host memory, but the largest device has %" PRId64 " and %" PRId64
                            " left after the reservation: short by %" PRId64 " bytes",
                            name, TrsShardingTypeName(option->type), TrsComputeKernelName(option->kernel),
                            option->max_hbm, option->max_ddr, a->most.hbm, a->most.ddr, a->worst_bytes));
    PetscCall(say_relax(model, option->table,
                        is_for_batches(model, reservation,
                                       (double)option->total_storage.hbm + (double)option->total_storage.ddr,
                                       table_bytes(model, &model->tables->table[option->table])),
                        (PetscBool)(option->max_hbm > a->most.hbm),
                        (PetscBool)(option->max_ddr > a->most.ddr), message));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(TrsTextPrintf(
      message,
      "every table fits by itself, but none of %" PRId64
      " proposal%s could be placed as a whole: the least demanding needs %.0f bytes of device and %.0f of "
      "host memory of %.0f and %.0f left on %d device%s, and its shards are too coarse or bound to hosts. "
      "Table \"%s\" is the largest",
      search->partitioned, TrsPlural(search->partitioned, "s"), (double)search->lowest_hbm,
      (double)search->lowest_ddr, (double)a->sum_hbm, (double)a->sum_ddr, model->topology->world_size,
      TrsPlural(model->topology->world_size, "s"), model->tables->table[largest].name));
  if (search->attempts > 0)
    PetscCall(TrsTextPrintf(message, ". The optimal proposer tried to build a plan %d time%s in vain%s",
                            search->attempts, TrsPlural(search->attempts, "s"),
                            search->no_plan_proven ? ", and it is proven that there is none"
                                                   : ", which does not prove that there is none"));
  PetscCall(say_relax(model, largest, PETSC_FALSE, is_cuda,
                      (PetscBool)(!is_cuda || a->sum_ddr < 2 * search->lowest_ddr), message));
  PetscCall(say_time(search, a, message));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_invalid(const TrsCostModel *model, const TrsPlanOption *option, TrsText *message)
{
  const TrsTableConfig *table = &model->tables->table[option->table];
  const char *name = TrsTableOptionName(table);

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(
      message,
      "the best plan gives table \"%s\" the kernel %s with a cache load factor of %g, which must be "
      "above 0 and below 1. Change -table_%s_cache_load_factor or -table_%s_compute_kernels",
      table->name, TrsComputeKernelName(option->kernel), option->load_factor, name, name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPlanDiagnose(const TrsCostModel *model, const TrsReservation *reservation,
                               const TrsSearchSpace *space, int table_alone, const TrsPlanSearch *search,
                               TrsPlanError *error, TrsText *message)
{
  const TrsPlanOption *invalid;
  TrsAnalysis a;

  PetscFunctionBegin;
  *error = TRS_PLAN_OK;
  if (reservation->too_little) {
    *error = TRS_PLAN_INSUFFICIENT_STORAGE;
    PetscCall(say_reservation(model, reservation, message));
  } else if (table_alone >= 0) {
    *error = TRS_PLAN_OTHER;
    PetscCall(say_no_option(model, table_alone, message));
  } else if (space->n_tables == 0) {
    PetscFunctionReturn(PETSC_SUCCESS);
  } else if (search->best.found) {
    invalid = find_invalid(&search->best.proposal);
    if (!invalid) PetscFunctionReturn(PETSC_SUCCESS);
    *error = TRS_PLAN_INVALID_COMPUTE_KERNEL;
    PetscCall(say_invalid(model, invalid, message));
  } else {
    analyse(model, reservation, space, &a);
    if (!model->topology->is_cuda && reservation->dense.ddr > model->topology->ddr[0]) {
      *error = TRS_PLAN_INSUFFICIENT_STORAGE;
      PetscCall(say_dense(model, reservation, message));
    } else if (search->feasible > 0) {
      *error = TRS_PLAN_OTHER;
      PetscCall(TrsTextPrintf(message, "every plan takes infinitely long: a bandwidth of the topology is too "
                                       "small. Look at the options -topology_..._bw"));
    } else if (!search->any_failed) {
      *error = TRS_PLAN_INSUFFICIENT_STORAGE;
      PetscCall(TrsTextPrintf(
          message, "no proposal was tried: the proposers had none for this problem (grid_search beyond "
                   "-plan_grid_search_max_proposals?) or -plan_timeout_seconds ended them. Give others with "
                   "-plan_proposers"));
    } else if (search->lowest_hbm > a.sum_hbm || search->lowest_ddr > a.sum_ddr) {
      *error = TRS_PLAN_INSUFFICIENT_STORAGE;
      PetscCall(say_storage(model, reservation, space, &a, search, message));
    } else {
      *error = TRS_PLAN_STRICT_CONSTRAINTS;
      PetscCall(say_strict(model, reservation, space, &a, search, message));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
