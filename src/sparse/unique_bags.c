/* SPDX-License-Identifier: BSD-3-Clause */
#include "sparse/unique_bags.h"

#include <string.h>

PetscErrorCode TrsUniqueBagsCreate(int n_features, TrsUniqueBags *bags)
{
  PetscFunctionBegin;
  *bags = (TrsUniqueBags){0};
  PetscCall(PetscCalloc1((size_t)n_features, &bags->strides));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsUniqueBagsDestroy(const TrsDeviceOps *device, TrsUniqueBags *bags)
{
  PetscFunctionBegin;
  PetscCall(TrsKjtFree(device, &bags->kjt));
  PetscCall(TrsDeviceBufferFree(device, &bags->inverse));
  PetscCall(TrsBufferFree(&bags->table));
  PetscCall(TrsBufferFree(&bags->beginning));
  PetscCall(PetscFree(bags->strides));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Of a bag's ids and the bits of its weights: a multiplication and a shift for each (Steele, Lea, Flood, OOPSLA'14). */
static uint64_t hash_bag(const TrsJagged *jagged, int64_t begin, int64_t end)
{
  uint64_t hash = (uint64_t)(end - begin);

  for (int64_t i = begin; i < end; i++) {
    uint32_t weight = 0;

    if (jagged->weights) memcpy(&weight, &jagged->weights[i], sizeof(weight));
    hash = (hash ^ (uint64_t)jagged->values[i] ^ (uint64_t)weight << 32) * 0xBF58476D1CE4E5B9U;
    hash ^= hash >> 29;
  }
  return hash;
}

static PetscBool same_bags(const TrsJagged *jagged, int64_t a, int64_t b)
{
  const int64_t n = jagged->lengths[a];
  const int64_t *values = jagged->values;
  const float *weights = jagged->weights;

  if (n != jagged->lengths[b]) return PETSC_FALSE;
  if (n == 0) return PETSC_TRUE;
  return (PetscBool)(memcmp(values + jagged->offsets[a], values + jagged->offsets[b],
                            (size_t)n * sizeof(*values)) == 0 &&
                     (!weights || memcmp(weights + jagged->offsets[a], weights + jagged->offsets[b],
                                         (size_t)n * sizeof(*weights)) == 0));
}

/*
  One feature: first [<= batch] the first sample's bag of each distinct one, inverse [batch]; returns how many. table [size], a power of 2
  above batch: number of the distinct bag + 1, at its hash or the next free place.
*/
static int64_t find_distinct(const TrsKjt *batch, int f, int64_t size, int64_t *table, int64_t *first,
                             int64_t *inverse)
{
  const TrsJagged *jagged = &batch->jagged;
  int64_t n = 0;

  memset(table, 0, (size_t)size * sizeof(*table));
  for (int64_t s = 0; s < batch->batch; s++) {
    const int64_t bag = f * batch->batch + s;
    uint64_t at = hash_bag(jagged, jagged->offsets[bag], jagged->offsets[bag + 1]) & (uint64_t)(size - 1);

    while (table[at] && !same_bags(jagged, first[table[at] - 1], bag)) at = (at + 1) & (uint64_t)(size - 1);
    if (!table[at]) {
      first[n] = bag;
      table[at] = ++n;
    }
    inverse[s] = table[at] - 1;
  }
  return n;
}

/* The distinct bags first [n], copied to the end of `to`. */
static void copy_bags(const TrsJagged *from, int64_t n, const int64_t *first, TrsJagged *to)
{
  for (int64_t i = 0; i < n; i++) {
    const int64_t begin = from->offsets[first[i]], length = from->lengths[first[i]];

    to->lengths[to->n_bags++] = (int32_t)length;
    for (int64_t k = 0; k < length; k++, to->n_values++) {
      to->values[to->n_values] = from->values[begin + k];
      if (to->weights) to->weights[to->n_values] = from->weights[begin + k];
    }
  }
}

PetscErrorCode TrsUniqueBagsFind(const TrsDeviceOps *device, const TrsComputeOps *compute, TrsStream stream,
                                 const TrsKjt *batch, TrsUniqueBags *bags)
{
  const int64_t B = batch->batch;
  int64_t size = 2, *inverse, *first, *table;
  TrsKjt *kjt = &bags->kjt;

  PetscFunctionBegin;
  PetscCheck(device->host_memory, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-ebc_variable_batch: bags are compared by the host alone; use -device cpu");
  while (size < 2 * B) size *= 2;
  PetscCall(
      TrsDeviceBufferReserve(device, &bags->inverse, batch->n_features * B * (int64_t)sizeof(*inverse)));
  PetscCall(TrsBufferReserve(&bags->table, size * (int64_t)sizeof(*table), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&bags->beginning, batch->n_features * B * (int64_t)sizeof(*first), PETSC_FALSE));
  inverse = (int64_t *)bags->inverse.data;
  first = (int64_t *)bags->beginning.data;
  table = (int64_t *)bags->table.data;
  for (int f = 0; f < batch->n_features; f++)
    bags->strides[f] = find_distinct(batch, f, size, table, first + f * B, inverse + f * B);
  PetscCall(TrsKjtReserveVariable(device, kjt, batch->n_features, bags->strides, batch->jagged.n_values,
                                  batch->is_weighted));
  kjt->jagged.n_bags = kjt->jagged.n_values = 0;
  for (int f = 0; f < batch->n_features; f++)
    copy_bags(&batch->jagged, bags->strides[f], first + f * B, &kjt->jagged);
  PetscCall(TrsKjtOffsets(compute, stream, kjt));
  PetscFunctionReturn(PETSC_SUCCESS);
}
