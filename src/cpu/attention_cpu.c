/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/cpu_kernels.h"
#include "cpu/isa/dense_kernels.h"

/*
  Return the number of floats of scratch for each row: two floats, and the key and value of one head
  with their gradients.
*/
static int64_t scratch_of_row(int64_t dim, int64_t heads)
{
  return 2 + 4 * (dim / heads);
}

int64_t TrsAttentionScratch(int64_t rows, int64_t dim, int64_t heads)
{
  return rows * scratch_of_row(dim, heads);
}

/* Return pointers to the bag's part of each array. */
static TrsAttentionBag bag_of(const TrsAttention *a, int64_t bag)
{
  const int64_t first = a->offsets[bag] - a->first;

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

PetscErrorCode TrsAttentionForwardCpu(TrsStream stream, const TrsAttention *attention)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < attention->n; b++) {
    TrsAttentionBag bag = bag_of(attention, b);

    bag.dout = bag.dqkv = NULL;
    kernels->attend(&bag);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsAttentionBackwardCpu(TrsStream stream, const TrsAttention *attention)
{
  const TrsDenseKernels *kernels = TrsDenseKernelsGet();

  PetscFunctionBegin;
  (void)stream;
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < attention->n; b++) {
    const TrsAttentionBag bag = bag_of(attention, b);

    kernels->attend_backward(&bag);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
