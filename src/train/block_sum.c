/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/block_sum.h"

#include <string.h>

/* Subtree `index` of those with 2^level blocks: blocks index * 2^level on. */
typedef struct {
  int64_t level, index;
} TrsSubtree;

/* The left siblings of a path from a leaf to the root of 2^62 blocks, and as many right ones. */
enum { TRS_MAX_SUBTREES = 128 };

struct TrsBlockSumImpl {
  TrsComm comm;
  int64_t n;
  int n_trees; /* of this rank's blocks, in order */
  TrsSubtree tree[TRS_MAX_SUBTREES];
  TrsBuffer vector[TRS_MAX_SUBTREES]; /* [n] each */
  int *n_trees_of;                    /* [W] */
  TrsSubtree *all;                    /* [W * TRS_MAX_SUBTREES] subtrees of each rank */
  int64_t *slice;                     /* [W + 1] where each rank's part of the vector begins */
  int64_t *send, *send_at, *recv, *recv_at;
  TrsBuffer packed, slices;
};

PetscErrorCode TrsBlockSumCreate(TrsComm comm, int64_t n, TrsBlockSum *sum)
{
  const size_t W = (size_t)comm->size;
  TrsBlockSum s;

  PetscFunctionBegin;
  PetscCall(PetscNew(&s));
  s->comm = comm;
  s->n = n;
  PetscCall(PetscMalloc7(W, &s->n_trees_of, W * TRS_MAX_SUBTREES, &s->all, W + 1, &s->slice, W, &s->send, W,
                         &s->send_at, W, &s->recv, W, &s->recv_at));
  for (size_t q = 0; q <= W; q++) s->slice[q] = (int64_t)q * n / (int64_t)W;
  *sum = s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBlockSumDestroy(TrsBlockSum *sum)
{
  TrsBlockSum s = *sum;

  PetscFunctionBegin;
  if (!s) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_MAX_SUBTREES; i++) PetscCall(TrsBufferFree(&s->vector[i]));
  PetscCall(TrsBufferFree(&s->packed));
  PetscCall(TrsBufferFree(&s->slices));
  PetscCall(PetscFree7(s->n_trees_of, s->all, s->slice, s->send, s->send_at, s->recv, s->recv_at));
  PetscCall(PetscFree(*sum));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void add(int64_t n, const float *restrict from, float *restrict to)
{
  for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

/* Are the last two of n subtrees siblings? */
static PetscBool end_in_siblings(const TrsSubtree *tree, int n)
{
  return (PetscBool)(n >= 2 && tree[n - 1].level == tree[n - 2].level && tree[n - 2].index % 2 == 0 &&
                     tree[n - 1].index == tree[n - 2].index + 1);
}

/* The last two become their parent, whose number stands where the left one's did. */
static void join(TrsSubtree *tree, int *n)
{
  --*n;
  tree[*n - 1] = (TrsSubtree){.level = tree[*n - 1].level + 1, .index = tree[*n - 1].index / 2};
}

PetscErrorCode TrsBlockSumAdd(TrsBlockSum s, int64_t block, const float *vector)
{
  TrsBuffer *place = &s->vector[s->n_trees];

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(place, s->n * (int64_t)sizeof(float), PETSC_FALSE));
  memcpy(place->data, vector, (size_t)s->n * sizeof(float));
  s->tree[s->n_trees++] = (TrsSubtree){.level = 0, .index = block};
  while (end_in_siblings(s->tree, s->n_trees)) {
    add(s->n, (const float *)s->vector[s->n_trees - 1].data, (float *)s->vector[s->n_trees - 2].data);
    join(s->tree, &s->n_trees);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* This rank's slice of every subtree of every rank, rank by rank. */
static PetscErrorCode exchange_slices(TrsBlockSum s, TrsStream stream)
{
  const int W = s->comm->size, rank = s->comm->rank;
  const int64_t mine = s->slice[rank + 1] - s->slice[rank];
  int64_t n_recv = 0;
  float *to;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allgather(&s->n_trees, 1, MPI_INT, s->n_trees_of, 1, MPI_INT, s->comm->mpi));
  PetscCallMPI(MPI_Allgather(s->tree, 2 * TRS_MAX_SUBTREES, MPI_INT64_T, s->all, 2 * TRS_MAX_SUBTREES,
                             MPI_INT64_T, s->comm->mpi));
  PetscCall(TrsBufferReserve(&s->packed, s->n_trees * s->n * (int64_t)sizeof(float), PETSC_FALSE));
  to = (float *)s->packed.data;
  for (int q = 0; q < W; q++) {
    const int64_t n = s->slice[q + 1] - s->slice[q];
    s->send_at[q] = s->n_trees * s->slice[q];
    s->send[q] = s->n_trees * n;
    s->recv_at[q] = n_recv;
    s->recv[q] = s->n_trees_of[q] * mine;
    n_recv += s->recv[q];
    for (int i = 0; i < s->n_trees; i++, to += n)
      memcpy(to, (const float *)s->vector[i].data + s->slice[q], (size_t)n * sizeof(float));
  }
  PetscCall(TrsBufferReserve(&s->slices, n_recv * (int64_t)sizeof(float), PETSC_FALSE));
  PetscCall(TrsCommAlltoallv(s->comm, stream, s->packed.data, s->send, s->send_at, s->slices.data, s->recv,
                             s->recv_at, sizeof(float), &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add up the slices as if all blocks had been added one after the other; what is left has no sibling and is added from the right. */
static const float *add_slices(TrsBlockSum s)
{
  const int64_t n = s->slice[s->comm->rank + 1] - s->slice[s->comm->rank];
  float *from = (float *)s->slices.data, *at[TRS_MAX_SUBTREES] = {from};
  TrsSubtree tree[TRS_MAX_SUBTREES];
  int n_trees = 0;

  for (int q = 0; q < s->comm->size; q++)
    for (int i = 0; i < s->n_trees_of[q]; i++, from += n) {
      tree[n_trees] = s->all[q * TRS_MAX_SUBTREES + i];
      at[n_trees++] = from;
      while (end_in_siblings(tree, n_trees)) {
        add(n, at[n_trees - 1], at[n_trees - 2]);
        join(tree, &n_trees);
      }
    }
  for (; n_trees > 1; n_trees--) add(n, at[n_trees - 1], at[n_trees - 2]);
  return at[0];
}

PetscErrorCode TrsBlockSumFinish(TrsBlockSum s, TrsStream stream, float *total)
{
  const float *mine;
  TrsRequest request = NULL;

  PetscFunctionBegin;
  PetscCall(exchange_slices(s, stream));
  mine = add_slices(s);
  for (int q = 0; q < s->comm->size; q++) s->recv[q] = s->slice[q + 1] - s->slice[q];
  PetscCall(TrsCommAllgatherv(s->comm, stream, mine, total, s->recv, s->slice, sizeof(float), &request));
  PetscCall(TrsRequestWait(&request, stream));
  s->n_trees = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
