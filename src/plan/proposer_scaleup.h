/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of the embedding_offload_scaleup proposer that are tested on their own. */
#pragma once

#include "core/error.h"

#include <stdint.h>

/* One cached table as the budget sees it. Its hbm bytes are about slope * load factor + base. */
typedef struct {
  float slope, base;
  int64_t fused_bytes; /* bytes without a cache */
  float load_factor, priority;
} TrsScaleupTable;

/*
  TrsAllocateBudget - Distribute device memory to caches by priority.

  Not collective. float32 and double are used as in TorchRec.

  InOut:  table  [n] load_factor becomes the new one
*/
PetscErrorCode TrsAllocateBudget(int n, TrsScaleupTable *table, double budget_bytes);
