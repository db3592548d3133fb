/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The memory-balanced partitioner. It bisects the memory that devices may use, and keeps the plan
  about as fast.

  Source: TorchRec MemoryBalancedPartitioner
*/
#include "plan/impl.h"

#include <math.h>
#include <string.h>

#define STOP_WIDTH_BYTES (INT64_C(10) << 20)

/* Measure the device memory that is used: the total, the largest shard, and the fullest rank. */
static void measure_hbm(TrsPartitioner p, const TrsProposal *proposal, TrsInt128 *total, int64_t *shard,
                        int64_t *rank)
{
  *total = 0;
  *shard = *rank = 0;
  for (int i = 0; i < proposal->n; i++) *shard = PetscMax(*shard, proposal->option[i]->max_hbm);
  for (int r = 0; r < p->config.world_size; r++) {
    int64_t used = p->left[r].hbm - p->device[r].hbm;

    *total += used;
    *rank = PetscMax(*rank, used);
  }
}

PetscErrorCode TrsPartitionMemoryBalanced(TrsPartitioner p, const TrsProposal *proposal, PetscBool *placed,
                                          double *rating)
{
  int W = p->config.world_size;
  TrsPartitionHint hint = {.limit = HUGE_VAL};
  PetscBool complete;
  TrsInt128 total;
  int64_t shard, low, high;
  double limit;

  PetscFunctionBegin;
  PetscCall(TrsPartitionGreedy(p, proposal, &hint, PETSC_TRUE, p->config.balance_modules, placed, &complete));
  if (!*placed) PetscFunctionReturn(PETSC_SUCCESS);
  *rating = TrsRatePlacement(p, HUGE_VAL);
  PetscCall(TrsPlacementCopy(&p->placement, p->max_tables, &p->kept));
  limit = *rating * (1 + p->config.tolerance);
  hint = (TrsPartitionHint){.limit = limit, .only_below = PETSC_TRUE};
  measure_hbm(p, proposal, &total, &shard, &high);
  low = PetscMax((int64_t)((double)total / (double)W), shard);
  for (int64_t i = 0; i < p->config.max_search_count && low + STOP_WIDTH_BYTES < high; i++) {
    int64_t middle = low + (high - low) / 2;
    PetscBool fits;

    for (int r = 0; r < W; r++) p->left[r].hbm = middle;
    PetscCall(
        TrsPartitionGreedy(p, proposal, &hint, PETSC_TRUE, p->config.balance_modules, &fits, &complete));
    if (fits) {
      double trial = TrsRatePlacement(p, limit);

      fits = (PetscBool)(trial <= limit);
      if (fits) *rating = trial;
    }
    if (!fits) {
      low = middle;
      continue;
    }
    PetscCall(TrsPlacementCopy(&p->placement, p->max_tables, &p->kept));
    high = middle;
  }
  memcpy(p->left, p->config.left, (size_t)W * sizeof(*p->left));
  PetscFunctionReturn(PETSC_SUCCESS);
}
