/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of the embedding_offload_scaleup proposer that have tests of their own. */
#pragma once

#include "core/error.h"

#include <stdint.h>

/* A cached table to which budget may go. It needs about slope * load factor + base bytes of hbm. */
typedef struct {
  float slope, base;
  int64_t fused_bytes; /* bytes of the table without a cache */
  float load_factor, priority;
} TrsScaleupTable;

/*
  TrsAllocateBudget - Distribute device memory to caches by priority.

  Not collective. Computes in float32 and double as TorchRec does.

  InOut:  table  [n] load_factor is set to the new load factor
*/
PetscErrorCode TrsAllocateBudget(int n, TrsScaleupTable *table, double budget_bytes);
