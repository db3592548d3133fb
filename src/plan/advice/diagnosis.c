/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/advice/diagnosis.h"

#include "core/names.h"
#include "plan/advice/remedies.h"

#include <inttypes.h>

#define GIB 1073741824.0

const char *TrsPlanErrorName(TrsPlanError error)
{
  static const char *const names[] = {"NONE", "INSUFFICIENT_STORAGE", "STRICT_CONSTRAINTS",
                                      "INVALID_COMPUTE_KERNEL", "OTHER"};

  return names[error];
}

TrsPlanError TrsPlanErrorOf(const TrsFailure *failure)
{
  switch (failure->kind) {
  case TRS_FAILURE_NONE: break;
  case TRS_FAILURE_RESERVED:
  case TRS_FAILURE_DENSE:
  case TRS_FAILURE_NO_PROPOSAL:
  case TRS_FAILURE_MEMORY: return TRS_PLAN_INSUFFICIENT_STORAGE;
  case TRS_FAILURE_SHARD:
  case TRS_FAILURE_PACKING: return TRS_PLAN_STRICT_CONSTRAINTS;
  case TRS_FAILURE_KERNEL: return TRS_PLAN_INVALID_COMPUTE_KERNEL;
  case TRS_FAILURE_NO_OPTION:
  case TRS_FAILURE_INFINITE: return TRS_PLAN_OTHER;
  }
  return TRS_PLAN_OK;
}

static PetscErrorCode say_reserved(const TrsProblem *p, const TrsSolution *s, const TrsFailure *f,
                                   TrsText *message)
{
  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(message,
                          "the reservation leaves no device memory for tables: of %" PRId64
                          " bytes a device, %.1f%% are kept, the dense model takes %" PRId64
                          " and inputs take %" PRId64 ": short by %.0f bytes",
                          p->topology.hbm[0], 100 * s->reservation.percentage, s->reservation.dense.hbm,
                          s->reservation.kjt.hbm, f->short_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_no_option(const TrsProblem *p, const TrsFailure *f, TrsText *message)
{
  const TrsTableConfig *table = &p->tables->table[f->table];
  const char *name = TrsTableOptionName(table);
  const TrsShardingType *types;
  const int n = TrsSharderTypes(&p->model, table, &types);

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(
      message,
      "table \"%s\" (%s, %s) has no sharding option left: its sharding_types and compute_kernels "
      "exclude each other or are not available on %s. The types of such tables are",
      table->name, TrsModuleName(TrsTableModule(table)), p->settings.is_quant ? "quantised" : "trained",
      p->topology.is_cuda ? "cuda" : "cpu"));
  for (int i = 0; i < n; i++)
    PetscCall(TrsTextPrintf(message, "%s %s", i ? "," : "", TrsShardingTypeName(types[i])));
  PetscCall(
      TrsTextPrintf(message, ". Relax: -table_%s_sharding_types, -table_%s_compute_kernels", name, name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_memory(const TrsProblem *p, const TrsSolution *s, const TrsFailure *f,
                                 TrsText *message)
{
  const int W = p->topology.world_size;
  const int64_t n = s->search.partitioned;

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(
      message,
      "the tables need at least %.0f bytes (%.2f GiB) of %s memory in the least demanding of %" PRId64
      " proposal%s, but all %d device%s together have %.0f (%.2f GiB) after the reservation: short by %.0f "
      "bytes. Table \"%s\" needs most",
      f->need, f->need / GIB, f->hbm ? "device" : "host", n, TrsPlural(n, "s"), W, TrsPlural(W, "s"), f->have,
      f->have / GIB, f->short_bytes, p->tables->table[f->table].name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_shard(const TrsProblem *p, const TrsFailure *f, TrsText *message)
{
  const TrsPlanOption *option = f->option;

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(message,
                          "table \"%s\" fits on no device: even as %s/%s a shard needs %" PRId64
                          " bytes of device and %" PRId64
                          " of host memory, but the largest device has %" PRId64 " and %" PRId64
                          " left after the reservation: short by %.0f bytes",
                          p->tables->table[f->table].name, TrsShardingTypeName(option->type),
                          TrsComputeKernelName(option->kernel), option->max_hbm, option->max_ddr, f->most.hbm,
                          f->most.ddr, f->short_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_packing(const TrsProblem *p, const TrsSolution *s, const TrsFailure *f,
                                  TrsText *message)
{
  const TrsPlanSearch *search = &s->search;
  const int W = p->topology.world_size;

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(
      message,
      "every table fits by itself, but none of %" PRId64
      " proposal%s could be placed as a whole: the least demanding needs %.0f bytes of device and %.0f of "
      "host memory of %.0f and %.0f left on %d device%s, and its shards are too coarse or bound to hosts. "
      "Table \"%s\" is the largest",
      search->partitioned, TrsPlural(search->partitioned, "s"), (double)search->lowest_hbm,
      (double)search->lowest_ddr, (double)f->sum_hbm, (double)f->sum_ddr, W, TrsPlural(W, "s"),
      p->tables->table[f->table].name));
  if (search->attempts > 0)
    PetscCall(TrsTextPrintf(message, ". The optimal proposer tried to build a plan %d time%s in vain%s",
                            search->attempts, TrsPlural(search->attempts, "s"),
                            search->no_plan_proven ? ", and it is proven that there is none"
                                                   : ", which does not prove that there is none"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_kernel(const TrsProblem *p, const TrsFailure *f, TrsText *message)
{
  const TrsTableConfig *table = &p->tables->table[f->table];
  const char *name = TrsTableOptionName(table);

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(
      message,
      "the best plan gives table \"%s\" the kernel %s with a cache load factor of %g, which must be "
      "above 0 and below 1. Change -table_%s_cache_load_factor or -table_%s_compute_kernels",
      table->name, TrsComputeKernelName(f->option->kernel), f->option->load_factor, name, name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode say_reason(const TrsProblem *p, const TrsSolution *s, const TrsFailure *f,
                                 TrsText *message)
{
  switch (f->kind) {
  case TRS_FAILURE_NONE: break;
  case TRS_FAILURE_RESERVED: return say_reserved(p, s, f, message);
  case TRS_FAILURE_NO_OPTION: return say_no_option(p, f, message);
  case TRS_FAILURE_MEMORY: return say_memory(p, s, f, message);
  case TRS_FAILURE_SHARD: return say_shard(p, f, message);
  case TRS_FAILURE_PACKING: return say_packing(p, s, f, message);
  case TRS_FAILURE_KERNEL: return say_kernel(p, f, message);
  case TRS_FAILURE_DENSE:
    return TrsTextPrintf(message,
                         "the dense layers leave no memory for tables: of %.0f bytes a rank, they take %.0f "
                         "(%.2f GiB), their gradients and states among them: short by %.0f bytes",
                         f->have, f->need, f->need / GIB, f->short_bytes);
  case TRS_FAILURE_INFINITE:
    return TrsTextPrintf(message, "every plan takes infinitely long: a bandwidth of the topology is too "
                                  "small. Look at the options -topology_..._bw");
  case TRS_FAILURE_NO_PROPOSAL:
    return TrsTextPrintf(message, "no proposal was tried: %s",
                         s->search.timed_out ? "-plan_timeout_seconds ended the search before"
                                             : "the proposers had none for this problem (grid_search beyond "
                                               "-plan_grid_search_max_proposals?)");
  }
  return PETSC_SUCCESS;
}

PetscErrorCode TrsPlanDiagnose(const TrsProblem *p, const TrsSolution *s, const TrsFailure *f,
                               TrsText *message, TrsText *changes)
{
  TrsRemedies remedies;

  PetscFunctionBegin;
  PetscCall(say_reason(p, s, f, message));
  if (f->for_batches)
    PetscCall(TrsTextPrintf(message,
                            ". Most of it is for batches of %" PRId64 " samples a rank, not for tables",
                            p->settings.batch_size));
  PetscCall(TrsRemediesFind(p, f, &remedies));
  PetscCall(TrsRemediesName(remedies, message));
  PetscCall(TrsRemediesWrite(remedies, changes));
  PetscCall(TrsRemediesFree(&remedies));
  if (f->in_time)
    PetscCall(TrsTextPrintf(message,
                            ". -plan_timeout_seconds ended the search: with more time it may find a plan"));
  PetscFunctionReturn(PETSC_SUCCESS);
}
