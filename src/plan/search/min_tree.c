/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/search/min_tree.h"

#include <math.h>
#include <string.h>

static TrsMinNode merge(const TrsMinNode *a, const TrsMinNode *b)
{
  const PetscBool first = (PetscBool)(a->load <= b->load);

  return (TrsMinNode){.load = first ? a->load : b->load,
                      .hbm = a->hbm >= b->hbm ? a->hbm : b->hbm,
                      .ddr = a->ddr >= b->ddr ? a->ddr : b->ddr,
                      .leaf = first ? a->leaf : b->leaf};
}

PetscErrorCode TrsMinTreeCreate(int n, TrsMinTree *tree)
{
  PetscFunctionBegin;
  tree->n = n;
  tree->n_leaves = 1;
  while (tree->n_leaves < n) tree->n_leaves *= 2;
  PetscCall(PetscMalloc1(2 * (size_t)tree->n_leaves, &tree->node));
  for (int i = n; i < tree->n_leaves; i++)
    tree->node[tree->n_leaves + i] = (TrsMinNode){HUGE_VAL, INT64_MIN, INT64_MIN, i};
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
  for (int i = 0; i < tree->n_leaves; i++) tree->node[tree->n_leaves + i].leaf = i;
  for (int i = tree->n_leaves - 1; i >= 1; i--)
    tree->node[i] = merge(&tree->node[2 * (size_t)i], &tree->node[2 * (size_t)i + 1]);
}

/*
  The bits of a load. Loads are >= 0, and such doubles sort like their bits. The compiler selects
  the smaller of two integers without a branch, which a processor could rarely predict here.
*/
static int64_t bits_of(double load)
{
  int64_t bits;

  memcpy(&bits, &load, sizeof(bits));
  return bits;
}

void TrsMinTreeSet(TrsMinTree *tree, int leaf, double load, int64_t hbm, int64_t ddr)
{
  size_t i = (size_t)tree->n_leaves + (size_t)leaf;
  int64_t bits = bits_of(load);

  tree->node[i] = (TrsMinNode){load, hbm, ddr, leaf};
  while (i > 1) {
    const TrsMinNode *other = &tree->node[i ^ 1];
    TrsMinNode *up = &tree->node[i / 2];
    const int64_t of_other = bits_of(other->load);
    /* the leaves on the left are the smaller ones, so this is merge() in either order */
    const int is_other = (of_other < bits) | ((of_other == bits) & (other->leaf < leaf));

    bits = is_other ? of_other : bits;
    leaf = is_other ? other->leaf : leaf;
    hbm = PetscMax(hbm, other->hbm);
    ddr = PetscMax(ddr, other->ddr);
    if ((bits == bits_of(up->load)) & (leaf == up->leaf) & (hbm == up->hbm) & (ddr == up->ddr))
      return; /* the nodes above do not change either */
    memcpy(&up->load, &bits, sizeof(bits));
    up->hbm = hbm;
    up->ddr = ddr;
    up->leaf = leaf;
    i /= 2;
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
  const int least = tree->node[1].leaf;
  const TrsMinNode *node = &tree->node[(size_t)tree->n_leaves + (size_t)least];

  /* In most searches the leaf with the least load has enough memory. */
  if (node->hbm >= hbm && node->ddr >= ddr) return least;
  search(&s, 1, 0, tree->n_leaves);
  return s.leaf;
}
