/* SPDX-License-Identifier: BSD-3-Clause */
#include "compute/attention.h"

#include "compute/dense_kernels.h"
#include "compute/for_each.h"

/* A row's share of the scratch: two floats, and a key, a value and their gradients of one head. */
static int64_t scratch_of_row(int64_t dim, int64_t heads)
{
  return 2 + 4 * (dim / heads);
}

int64_t TrsAttentionScratch(int64_t rows, int64_t dim, int64_t heads)
{
  return rows * scratch_of_row(dim, heads);
}

/* The bag's part of all arrays. */
static TrsAttentionBag bag_of(const TrsAttention *a, int64_t bag)
{
  const int64_t first = a->offsets[bag] - a->offsets[0];

  return (TrsAttentionBag){.n = a->offsets[bag + 1] - a->offsets[bag],
                           .dim = a->dim,
                           .heads = a->heads,
                           .causal = a->causal,
                           .qkv = a->qkv + 3 * first * a->dim,
                           .out = a->out + first * a->dim,
                           .log_sums = a->log_sums + first * a->heads,
                           .scratch = a->scratch + first * scratch_of_row(a->dim, a->heads),
                           .dout = a->dout ? a->dout + first * a->dim : NULL,
                           .dqkv = a->dqkv ? a->dqkv + 3 * first * a->dim : NULL};
}

static void forward_bag(void *context, int64_t i)
{
  const TrsAttentionBag bag = bag_of((const TrsAttention *)context, i);

  TrsDenseKernelsGet()->attend(&bag);
}

static void backward_bag(void *context, int64_t i)
{
  const TrsAttentionBag bag = bag_of((const TrsAttention *)context, i);

  TrsDenseKernelsGet()->attend_backward(&bag);
}

void TrsAttentionForward(const TrsAttention *attention)
{
  TrsAttention a = *attention;

  a.dout = a.dqkv = NULL;
  TrsForEach(a.n, forward_bag, &a);
}

void TrsAttentionBackward(const TrsAttention *attention)
{
  TrsAttention a = *attention;

  TrsForEach(a.n, backward_bag, &a);
}
