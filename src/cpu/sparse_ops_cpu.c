/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Jagged tensors on the CPU: prefix sums, permutations of bag blocks, and unique ids. Row buckets
  are in bucketize_cpu.c.

  Source: FBGEMM permute_2D_sparse_data, jagged_unique_indices
*/
#include "cpu/cpu_kernels.h"
#include "cpu/row_sort.h"

#include <inttypes.h>
#include <omp.h>
#include <string.h>

PetscErrorCode TrsOffsetsCpu(TrsStream stream, int64_t n, const int32_t *lengths, int64_t *offsets)
{
  int64_t sum = 0;

  PetscFunctionBegin;
  (void)stream;
  for (int64_t i = 0; i < n; i++) {
    offsets[i] = sum;
    sum += lengths[i];
  }
  offsets[n] = sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPermuteBlocksCpu(TrsStream stream, TrsWorkspace workspace, int n_in,
                                   const int64_t *block_begin, int n_out, const int *permutation,
                                   const TrsJagged *in, TrsJagged *out)
{
  int64_t bag = 0, value = 0;

  PetscFunctionBegin;
  (void)stream;
  (void)workspace;
  (void)n_in;
  for (int j = 0; j < n_out; j++) {
    const int64_t first_bag = block_begin[permutation[j]],
                  n_bags = block_begin[permutation[j] + 1] - first_bag;
    const int64_t first = in->offsets[first_bag], n = in->offsets[first_bag + n_bags] - first;
    if (n_bags > 0)
      memcpy(out->lengths + bag, in->lengths + first_bag, (size_t)n_bags * sizeof(*in->lengths));
    if (n > 0 && in->values && out->values)
      memcpy(out->values + value, in->values + first, (size_t)n * sizeof(*in->values));
    for (int64_t i = 0; !in->values && out->values && i < n; i++) out->values[value + i] = first + i;
    if (n > 0 && in->weights && out->weights)
      memcpy(out->weights + value, in->weights + first, (size_t)n * sizeof(*in->weights));
    if (out->offsets) /* copying the offsets with a shift is faster than computing them again */
      for (int64_t b = 0; b < n_bags; b++) out->offsets[bag + b] = in->offsets[first_bag + b] - first + value;
    bag += n_bags;
    value += n;
  }
  if (out->offsets) out->offsets[bag] = value;
  out->n_bags = bag;
  out->n_values = value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- unique --- */

PetscErrorCode TrsUniqueCpu(TrsStream stream, TrsWorkspace workspace, int n_tables,
                            const int64_t *values_begin, const int64_t *values, int64_t *unique_begin,
                            int64_t *unique_values, int64_t *reverse)
{
  int64_t n_unique = 0;

  PetscFunctionBegin;
  (void)stream;
  for (int t = 0; t < n_tables; t++) {
    const int64_t begin = values_begin[t], n = values_begin[t + 1] - begin;
    const int position_bits = TrsBitsFor((uint64_t)n);
    uint64_t *key, largest = 0;

    unique_begin[t] = n_unique;
    PetscCall(TrsBufferReserve(&workspace->keys, n * (int64_t)sizeof(*key), PETSC_FALSE));
    PetscCall(TrsBufferReserve(&workspace->scratch, n * (int64_t)sizeof(*key), PETSC_FALSE));
    key = (uint64_t *)workspace->keys.data;
    for (int64_t i = 0; i < n; i++) {
      const uint64_t from_0 = (uint64_t)(PetscMax(values[begin + i], -1) + 1);
      key[i] = from_0 << position_bits | (uint64_t)i;
      largest |= from_0;
    }
    PetscCheck(TrsBitsFor(largest) + position_bits <= 64, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%" PRId64 " ids of up to %" PRIu64 " are too many to be made unique at once", n, largest);
    key = TrsRowSort(n, position_bits, position_bits + TrsBitsFor(largest), key,
                     (uint64_t *)workspace->scratch.data);
    for (int64_t i = 0; i < n; i++) {
      const uint64_t row = key[i] >> position_bits;
      if (i == 0 || row != key[i - 1] >> position_bits) unique_values[n_unique++] = (int64_t)row - 1;
      reverse[begin + (int64_t)(key[i] & (((uint64_t)1 << position_bits) - 1))] = n_unique - 1 -
                                                                                  unique_begin[t];
    }
  }
  unique_begin[n_tables] = n_unique;
  PetscFunctionReturn(PETSC_SUCCESS);
}
