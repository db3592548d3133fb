/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Bags that samples share, on the CPU.

  Source: TorchRec KeyedJaggedTensor with stride_per_key_per_rank and inverse_indices
*/
#include "compute/bag_hash.h"
#include "compute/half.h"
#include "cpu/cpu_kernels.h"

#include <omp.h>
#include <string.h>

/* --- distinct bags --- */

static uint64_t hash_bag(const TrsJagged *in, int64_t bag)
{
  const int64_t begin = in->offsets[bag], n = in->offsets[bag + 1] - begin;
  uint64_t hash = 0;

  for (int64_t k = 0; k < n; k++)
    hash += TrsBagHashTerm(k, in->values[begin + k], in->weights ? TrsFloatBits(in->weights[begin + k]) : 0);
  return hash;
}

static int same_bags(const TrsJagged *in, int64_t a, int64_t b)
{
  const int64_t at_a = in->offsets[a], at_b = in->offsets[b], n = in->offsets[a + 1] - at_a;

  if (n != in->offsets[b + 1] - at_b) return 0;
  if (n == 0) return 1;
  return memcmp(in->values + at_a, in->values + at_b, (size_t)n * sizeof(*in->values)) == 0 &&
         (!in->weights ||
          memcmp(in->weights + at_a, in->weights + at_b, (size_t)n * sizeof(*in->weights)) == 0);
}

/*
  Find the distinct bags of a feature whose bags begin at `first`. Returns their number. hash
  [batch] receives the hashes of the distinct bags. table [size] is a hash table; its size is a
  power of 2 that is larger than batch. An entry is the index of a distinct bag plus 1. It is at the
  bag's hash, or at the next entry that is free.
*/
static int64_t find_distinct(const TrsJagged *in, int64_t first, int64_t batch, int64_t size, int32_t *table,
                             uint64_t *hash, int32_t *sample, int64_t *inverse)
{
  const uint64_t mask = (uint64_t)size - 1;
  int32_t n = 0;

  memset(table, 0, (size_t)size * sizeof(*table));
  for (int64_t s = 0; s < batch; s++) {
    const uint64_t mine = hash_bag(in, first + s);
    uint64_t at = mine & mask;

    while (table[at] &&
           !(hash[table[at] - 1] == mine && same_bags(in, first + sample[table[at] - 1], first + s)))
      at = (at + 1) & mask;
    if (!table[at]) {
      hash[n] = mine;
      sample[n] = (int32_t)s;
      table[at] = ++n;
    }
    inverse[s] = table[at] - 1;
  }
  return n;
}

/* Each thread works on one feature at a time, with its own hash table. */
PetscErrorCode TrsUniqueBagsCpu(TrsStream stream, TrsWorkspace workspace, int n_features, const int *feature,
                                const TrsJagged *in, const TrsBagLists *lists, int64_t *inverse)
{
  const int64_t B = lists->batch;
  int64_t size = 16, bytes;

  PetscFunctionBegin;
  (void)stream;
  while (size < 2 * B) size *= 2;
  bytes = size * (int64_t)sizeof(int32_t) + B * (int64_t)sizeof(uint64_t);
  PetscCall(TrsBufferReserve(&workspace->by_thread, TrsComputeThreads() * bytes, PETSC_FALSE));
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < n_features; i++) {
    char *own = (char *)workspace->by_thread.data + omp_get_thread_num() * bytes;

    lists->n[i] = find_distinct(in, feature[i] * B, B, size, (int32_t *)(void *)own,
                                (uint64_t *)(void *)(own + size * (int64_t)sizeof(int32_t)),
                                lists->sample + i * B, inverse + i * B);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- lists of bags --- */

/* Return the bag of a bag block to which entry k of list i refers. */
static inline int64_t listed(const TrsBagLists *lists, int block, int i, int64_t k)
{
  return block * lists->batch + (lists->sample ? lists->sample[i * lists->batch + k] : k);
}

/* Copy the ids of the bag block of `out` that begins at bag `to`. */
static void copy_ids(const TrsBagLists *lists, int block, int list, const TrsJagged *in, int64_t to,
                     const TrsJagged *out)
{
  for (int64_t k = 0; k < lists->n[list]; k++, to++) {
    const int64_t from = in->offsets[listed(lists, block, list, k)], at = out->offsets[to],
                  n = out->lengths[to];

    for (int64_t i = 0; i < n; i++) out->values[at + i] = in->values[from + i];
    for (int64_t i = 0; out->weights && i < n; i++) out->weights[at + i] = in->weights[from + i];
  }
}

PetscErrorCode TrsTakeBagsCpu(TrsStream stream, TrsWorkspace workspace, int n_out, const int *block,
                              const int *list, const TrsBagLists *lists, const TrsJagged *in, TrsJagged *out,
                              int64_t *limits)
{
  int64_t *first, bag = 0, value = 0;

  PetscFunctionBegin;
  (void)stream;
  PetscCall(TrsBufferReserve(&workspace->runs, n_out * (int64_t)sizeof(*first), PETSC_FALSE));
  first = (int64_t *)workspace->runs.data;
  for (int j = 0; j < n_out; j++) {
    const int64_t n = lists->n[list[j]], n_bags = limits ? n : lists->batch;

    if (limits) {
      limits[j] = n;
      limits[n_out + j] = value;
    }
    first[j] = bag;
    for (int64_t k = 0; k < n_bags; k++, bag++) {
      const int64_t from = k < n ? listed(lists, block[j], list[j], k) : -1;

      out->lengths[bag] = from < 0 ? 0 : (int32_t)(in->offsets[from + 1] - in->offsets[from]);
      out->offsets[bag] = value;
      value += out->lengths[bag];
    }
  }
  if (limits) limits[INT64_C(2) * n_out] = value;
  for (int64_t i = bag; i <= n_out * lists->batch; i++) out->offsets[i] = value;
  out->n_bags = bag;
  out->n_values = value;
#pragma omp parallel for schedule(dynamic)
  for (int j = 0; j < n_out; j++) copy_ids(lists, block[j], list[j], in, first[j], out);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsPadOffsetsCpu(TrsStream stream, TrsWorkspace workspace, int n_features,
                                const int64_t *strides, int64_t batch, const int64_t *offsets, int64_t *to)
{
  PetscFunctionBegin;
  (void)stream;
  (void)workspace;
  for (int f = 0; f < n_features; offsets += strides[f++])
    for (int64_t b = 0; b < batch; b++) *to++ = offsets[PetscMin(b, strides[f])];
  *to = *offsets;
  PetscFunctionReturn(PETSC_SUCCESS);
}
