/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/block_sum.h"

/* A subtree with 2^level blocks. Its first block is index * 2^level. */
typedef struct {
  int64_t level, index;
} TrsSubtree;

/*
  The largest number of left siblings on a path from a leaf to the root of 2^62 blocks, and as many
  right siblings.
*/
enum { TRS_MAX_SUBTREES = 128 };

struct TrsBlockSumImpl {
  TrsComm comm;
  int64_t n;
  int n_trees; /* number of subtrees of this rank's blocks, in order */
  TrsSubtree tree[TRS_MAX_SUBTREES];
  TrsDeviceBuffer vector[TRS_MAX_SUBTREES]; /* [n] floats for each subtree */
  /* [W + 1] index of the first element of each rank's slice of the vector */
  int64_t *slice;
  int64_t *send, *send_at, *recv, *recv_at;
  TrsDeviceBuffer packed, slices;
};

PetscErrorCode TrsBlockSumCreate(TrsComm comm, int64_t n, TrsBlockSum *sum)
{
  const size_t W = (size_t)comm->size;
  TrsBlockSum s;

  PetscFunctionBegin;
  PetscCall(PetscNew(&s));
  s->comm = comm;
  s->n = n;
  PetscCall(PetscMalloc5(W + 1, &s->slice, W, &s->send, W, &s->send_at, W, &s->recv, W, &s->recv_at));
  for (size_t q = 0; q <= W; q++) s->slice[q] = (int64_t)q * n / (int64_t)W;
  *sum = s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockSumDestroy(TrsBlockSum *sum)
{
  TrsBlockSum s = *sum;

  PetscFunctionBegin;
  if (!s) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_MAX_SUBTREES; i++) PetscCall(TrsDeviceBufferFree(s->comm->device, &s->vector[i]));
  PetscCall(TrsDeviceBufferFree(s->comm->device, &s->packed));
  PetscCall(TrsDeviceBufferFree(s->comm->device, &s->slices));
  PetscCall(PetscFree5(s->slice, s->send, s->send_at, s->recv, s->recv_at));
  PetscCall(PetscFree(*sum));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Compute left = left + right. */
static PetscErrorCode add(TrsBlockSum s, TrsStream stream, int64_t n, float *left, const float *right)
{
  const float *const parts[2] = {left, right};

  PetscFunctionBegin;
  PetscCall(s->comm->compute->sum_matrices(stream, 2, parts, n, 1, n, left, n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if the last two of n subtrees are siblings. */
static PetscBool end_in_siblings(const TrsSubtree *tree, int n)
{
  return (PetscBool)(n >= 2 && tree[n - 1].level == tree[n - 2].level && tree[n - 2].index % 2 == 0 &&
                     tree[n - 1].index == tree[n - 2].index + 1);
}

/* Replace the last two subtrees by their parent. */
static void join(TrsSubtree *tree, int *n)
{
  --*n;
  tree[*n - 1] = (TrsSubtree){.level = tree[*n - 1].level + 1, .index = tree[*n - 1].index / 2};
}

/*
  vector[i] has the sum of subtree i. The left siblings of the new block's path are added to the
  block in one pass, from the leaf up: L1 + (L0 + block). This is the order of the tree.
*/
PetscErrorCode TrsBlockSumAdd(TrsBlockSum s, TrsStream stream, int64_t block, const float *vector)
{
  const float *parts[TRS_MAX_SUBTREES + 1] = {vector};
  TrsDeviceBuffer *place;
  int n_parts = 1;

  PetscFunctionBegin;
  s->tree[s->n_trees++] = (TrsSubtree){.level = 0, .index = block};
  while (end_in_siblings(s->tree, s->n_trees)) {
    parts[n_parts++] = (const float *)s->vector[s->n_trees - 2].data;
    join(s->tree, &s->n_trees);
  }
  place = &s->vector[s->n_trees - 1];
  if (n_parts == 1) {
    PetscCall(TrsDeviceBufferReserve(s->comm->device, place, s->n * (int64_t)sizeof(float)));
    PetscCall(s->comm->device->copy(place->data, vector, s->n * (int64_t)sizeof(float), stream));
  } else {
    PetscCall(
        s->comm->compute->sum_matrices(stream, n_parts, parts, s->n, 1, s->n, (float *)place->data, s->n));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  List the subtrees of blocks [begin, end) in tree [TRS_MAX_SUBTREES], and return their number. If
  `tree` is NULL, only count them.
*/
static int subtrees_of(int64_t begin, int64_t end, TrsSubtree *tree)
{
  int n = 0;

  while (begin < end) { /* add the largest subtree that begins at this block */
    int64_t level = 0;

    while (begin % ((int64_t)2 << level) == 0 && begin + ((int64_t)2 << level) <= end) level++;
    if (tree) tree[n] = (TrsSubtree){.level = level, .index = begin >> level};
    begin += (int64_t)1 << level;
    n++;
  }
  return n;
}

/* Exchange slices. This rank receives its slice of every rank's subtrees, rank by rank. */
static PetscErrorCode exchange_slices(TrsBlockSum s, TrsStream stream, const int64_t *first_block)
{
  const TrsDeviceOps *device = s->comm->device;
  const int rank = s->comm->rank;
  const int64_t mine = s->slice[rank + 1] - s->slice[rank];
  int64_t n_recv = 0;
  float *to;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(device, &s->packed, s->n_trees * s->n * (int64_t)sizeof(float)));
  to = (float *)s->packed.data;
  for (int q = 0; q < s->comm->size; q++) {
    const int64_t n = s->slice[q + 1] - s->slice[q];

    s->send_at[q] = s->n_trees * s->slice[q];
    s->send[q] = s->n_trees * n;
    s->recv_at[q] = n_recv;
    s->recv[q] = subtrees_of(first_block[q], first_block[q + 1], NULL) * mine;
    n_recv += s->recv[q];
    for (int i = 0; i < s->n_trees; i++, to += n)
      PetscCall(device->copy(to, (const float *)s->vector[i].data + s->slice[q], n * (int64_t)sizeof(float),
                             stream));
  }
  PetscCall(TrsDeviceBufferReserve(device, &s->slices, n_recv * (int64_t)sizeof(float)));
  PetscCall(TrsCommAlltoallv(s->comm, stream, (TrsSentBlocks){s->packed.data, s->send, s->send_at},
                             (TrsReceivedBlocks){s->slices.data, s->recv, s->recv_at}, sizeof(float),
                             &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add the slices as if all blocks had been added one after the other. Subtrees that remain without a
  sibling are added from the last to the first.
*/
static PetscErrorCode add_slices(TrsBlockSum s, TrsStream stream, const int64_t *first_block,
                                 const float **sum)
{
  const int64_t n = s->slice[s->comm->rank + 1] - s->slice[s->comm->rank];
  float *from = (float *)s->slices.data, *at[TRS_MAX_SUBTREES] = {from};
  TrsSubtree tree[TRS_MAX_SUBTREES]; /* subtrees of the blocks added so far */
  int n_trees = 0;

  PetscFunctionBegin;
  for (int q = 0; q < s->comm->size; q++) {
    TrsSubtree own[TRS_MAX_SUBTREES];
    const int n_own = subtrees_of(first_block[q], first_block[q + 1], own);

    for (int i = 0; i < n_own; i++, from += n) {
      tree[n_trees] = own[i];
      at[n_trees++] = from;
      while (end_in_siblings(tree, n_trees)) {
        PetscCall(add(s, stream, n, at[n_trees - 2], at[n_trees - 1]));
        join(tree, &n_trees);
      }
    }
  }
  for (; n_trees > 1; n_trees--) PetscCall(add(s, stream, n, at[n_trees - 2], at[n_trees - 1]));
  *sum = at[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockSumFinish(TrsBlockSum s, TrsStream stream, const int64_t *first_block, float *total)
{
  const float *mine = NULL;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(exchange_slices(s, stream, first_block));
  PetscCall(add_slices(s, stream, first_block, &mine));
  for (int q = 0; q < s->comm->size; q++) s->recv[q] = s->slice[q + 1] - s->slice[q];
  PetscCall(TrsCommAllgatherv(s->comm, stream, mine, total, s->recv, s->slice, sizeof(float), &request));
  PetscCall(TrsRequestWait(&request, stream));
  s->n_trees = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
