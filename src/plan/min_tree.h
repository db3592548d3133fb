/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Tournament tree over bins (devices, hosts): the least loaded one with room.

  Leaves stand in the order that breaks ties. Each inner node keeps the least load below it and the largest free memory of each kind, so
  that a search skips what is full.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef struct {
  double load;      /* the least below */
  int64_t hbm, ddr; /* the most free below */
} TrsMinNode;

typedef struct {
  int n, n_leaves;  /* n_leaves: the power of two at or above n */
  TrsMinNode *node; /* [2 * n_leaves], the root is 1 */
} TrsMinTree;

PetscErrorCode TrsMinTreeCreate(int n, TrsMinTree *tree);
PetscErrorCode TrsMinTreeFree(TrsMinTree *tree);

/* After node[n_leaves + i] was written for all i. */
void TrsMinTreeBuild(TrsMinTree *tree);

void TrsMinTreeSet(TrsMinTree *tree, int leaf, double load, int64_t hbm, int64_t ddr);

/* First leaf with the least load among those with room for hbm and ddr, -1 if none has. */
int TrsMinTreeFind(const TrsMinTree *tree, int64_t hbm, int64_t ddr);
