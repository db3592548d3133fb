/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A tournament tree over bins (devices, hosts) that finds the least loaded bin with room.

  The leaves are in tie-breaking order. Each inner node keeps the least load below it and the
  largest free memory of each kind, so that a search skips full bins.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  double load;      /* the least load below */
  int64_t hbm, ddr; /* the most free memory below */
} TrsMinNode;

typedef struct {
  int n, n_leaves;  /* n_leaves: n rounded up to a power of two */
  TrsMinNode *node; /* [2 * n_leaves], the root is node 1 */
} TrsMinTree;

PetscErrorCode TrsMinTreeCreate(int n, TrsMinTree *tree);
PetscErrorCode TrsMinTreeFree(TrsMinTree *tree);

/* Build the tree after node[n_leaves + i] was written for all i. */
void TrsMinTreeBuild(TrsMinTree *tree);

void TrsMinTreeSet(TrsMinTree *tree, int leaf, double load, int64_t hbm, int64_t ddr);

/*
  The first leaf with the least load among those with room for hbm and ddr, or -1 if none has room.
*/
int TrsMinTreeFind(const TrsMinTree *tree, int64_t hbm, int64_t ddr);
