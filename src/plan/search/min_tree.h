/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A tournament tree over bins (devices or hosts). It finds the least loaded bin that has enough free
  memory.

  The leaves are in tie-breaking order. Each inner node stores the least load below it, the leaf
  that has it, and the largest free memory of each kind. So the least loaded bin is known without a
  search, and a search for a bin with enough memory skips full bins.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  double load;      /* the least load below this node */
  int64_t hbm, ddr; /* the largest free memory of each kind below this node */
  int leaf;         /* the first leaf below this node that has the least load */
} TrsMinNode;

typedef struct {
  int n, n_leaves;  /* number of bins; n_leaves: n rounded up to a power of two */
  TrsMinNode *node; /* [2 * n_leaves], the root is node 1 */
} TrsMinTree;

PetscErrorCode TrsMinTreeCreate(int n, TrsMinTree *tree);
PetscErrorCode TrsMinTreeFree(TrsMinTree *tree);

/* Build the tree. The caller must have written node[n_leaves + i] for all i, without `leaf`. */
void TrsMinTreeBuild(TrsMinTree *tree);

/* Change a bin. load must be >= 0. */
void TrsMinTreeSet(TrsMinTree *tree, int leaf, double load, int64_t hbm, int64_t ddr);

/*
  The first leaf with the least load among the leaves that have hbm and ddr bytes free. -1 if there
  is none.
*/
int TrsMinTreeFind(const TrsMinTree *tree, int64_t hbm, int64_t ddr);
