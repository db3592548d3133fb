/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/min_tree.h"

#include <math.h>

static TrsMinNode merge(const TrsMinNode *a, const TrsMinNode *b)
{
  return (TrsMinNode){.load = a->load <= b->load ? a->load : b->load,
                      .hbm = a->hbm >= b->hbm ? a->hbm : b->hbm,
                      .ddr = a->ddr >= b->ddr ? a->ddr : b->ddr};
}

PetscErrorCode TrsMinTreeCreate(int n, TrsMinTree *tree)
{
  PetscFunctionBegin;
  tree->n = n;
  tree->n_leaves = 1;
  while (tree->n_leaves < n) tree->n_leaves *= 2;
  PetscCall(PetscMalloc1(2 * (size_t)tree->n_leaves, &tree->node));
  for (int i = n; i < tree->n_leaves; i++)
    tree->node[tree->n_leaves + i] = (TrsMinNode){HUGE_VAL, INT64_MIN, INT64_MIN};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMinTreeFree(TrsMinTree *tree)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(tree->node));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsMinTreeBuild(TrsMinTree *tree)
{
  for (int i = tree->n_leaves - 1; i >= 1; i--)
    tree->node[i] = merge(&tree->node[2 * (size_t)i], &tree->node[2 * (size_t)i + 1]);
}

void TrsMinTreeSet(TrsMinTree *tree, int leaf, double load, int64_t hbm, int64_t ddr)
{
  int i = tree->n_leaves + leaf;

  tree->node[i] = (TrsMinNode){load, hbm, ddr};
  for (i /= 2; i >= 1; i /= 2) {
    TrsMinNode now = merge(&tree->node[2 * (size_t)i], &tree->node[2 * (size_t)i + 1]), *old = &tree->node[i];

    if (now.load == old->load && now.hbm == old->hbm && now.ddr == old->ddr)
      return; /* the nodes above do not change either */
    *old = now;
  }
}

typedef struct {
  const TrsMinTree *tree;
  int64_t hbm, ddr;
  int leaf; /* the best leaf found so far */
  double load;
} TrsSearch;

static void search(TrsSearch *s, int i, int first, int width)
{
  const TrsMinNode *node = &s->tree->node[i];

  if (node->hbm < s->hbm || node->ddr < s->ddr) return;
  if (s->leaf >= 0 && (node->load > s->load || (node->load == s->load && first > s->leaf))) return;
  if (width == 1) {
    s->leaf = first;
    s->load = node->load;
    return;
  }
  width /= 2;
  /* Search the half with the smaller load first. */
  if (s->tree->node[2 * (size_t)i].load <= s->tree->node[2 * (size_t)i + 1].load) {
    search(s, 2 * i, first, width);
    search(s, 2 * i + 1, first + width, width);
  } else {
    search(s, 2 * i + 1, first + width, width);
    search(s, 2 * i, first, width);
  }
}

int TrsMinTreeFind(const TrsMinTree *tree, int64_t hbm, int64_t ddr)
{
  TrsSearch s = {.tree = tree, .hbm = hbm, .ddr = ddr, .leaf = -1};
  int i = 1;

  while (i < tree->n_leaves)
    i = 2 * i + (tree->node[2 * (size_t)i].load <= tree->node[2 * (size_t)i + 1].load ? 0 : 1);
  /* In most searches the leaf with the least load has enough memory. */
  if (tree->node[i].hbm >= hbm && tree->node[i].ddr >= ddr) return i - tree->n_leaves;
  search(&s, 1, 0, tree->n_leaves);
  return s.leaf;
}
