/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/column_cuts.h"

#include "core/names.h"
#include "optim/sparse_optimizer.h"

#include <string.h>

enum { TRS_SHOWN_NAMES = 3 };

/* True if the plan cuts the columns of a trained table. */
static PetscBool is_cut(const TrsTablePlan *plan)
{
  if (plan && TrsKernelIsQuantised(plan->compute_kernel)) return PETSC_FALSE;
  for (int i = 0; plan && i < plan->n_shards; i++)
    if (plan->shard[i].col_offset > 0 && plan->shard[i].cols > 0) return PETSC_TRUE;
  return PETSC_FALSE;
}

PetscErrorCode TrsColumnCutsTell(MPI_Comm comm, TrsOptions options, const TrsTableConfigs *tables,
                                 const TrsShardingPlan *plan)
{
  const char *optimizer = NULL, *names[TRS_SHOWN_NAMES] = {"", "", ""};
  PetscBool reproducible;
  int n = 0, at = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(options, "-reproducible", &reproducible, NULL));
  if (reproducible) PetscFunctionReturn(PETSC_SUCCESS);
  for (int t = 0; t < tables->n; t++) {
    TrsSparseOptimizerKind kind;

    if (!is_cut(TrsShardingPlanFindNext(plan, tables->table[t].name, &at))) continue;
    PetscCall(TrsSparseOptimizerKindOf(options, TrsTableOptionName(&tables->table[t]), &kind));
    if (!TrsSparseOptimizerCouplesColumns(kind)) continue;
    if (n < TRS_SHOWN_NAMES) names[n] = tables->table[t].name;
    if (n++ == 0) optimizer = TrsSparseOptimizerName(kind);
  }
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
      PetscPrintf(comm,
                  "%-10s the columns of %d table%s are cut (%s%s%s%s%s%s), and %s acts on whole rows: each "
                  "shard has its own statistics, so results differ from an uncut plan's (not with "
                  "-reproducible)\n",
                  "plan", n, TrsPlural(n, "s"), names[0], n > 1 ? ", " : "", names[1], n > 2 ? ", " : "",
                  names[2], n > TRS_SHOWN_NAMES ? ", ..." : "", optimizer));
  PetscFunctionReturn(PETSC_SUCCESS);
}
