/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/copies.h"

#include <string.h>

PetscErrorCode TrsCopiesCreate(TrsComm owners, TrsCopies *copies)
{
  PetscFunctionBegin;
  *copies = (TrsCopies){.owners = owners};
  if (owners)
    PetscCall(PetscCalloc3(4 * (size_t)owners->size, &copies->told, (size_t)owners->size, &copies->counts,
                           (size_t)owners->size, &copies->displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopiesFree(const TrsDeviceOps *device, TrsCopies *copies)
{
  TrsDeviceBuffer *buffers[] = {&copies->lengths, &copies->values, &copies->weights, &copies->rows,
                                &copies->ordered};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
    PetscCall(TrsDeviceBufferFree(device, buffers[i]));
  PetscCall(TrsKjtFree(device, &copies->merged));
  PetscCall(PetscFree3(copies->told, copies->counts, copies->displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What copy q has: its samples (what 0) or its ids (what 1). */
static int64_t told(const TrsCopies *copies, int q, int what)
{
  return copies->told[2 * (copies->owners->size + q) + what];
}

static int64_t told_by_all(const TrsCopies *copies, int what)
{
  int64_t n = 0;

  for (int q = 0; q < copies->owners->size; q++) n += told(copies, q, what);
  return n;
}

/* Tell the other owners how many samples and ids this rank has. */
static PetscErrorCode tell(TrsCopies *copies, const TrsKjt *own)
{
  const int64_t n = copies->owners->size;
  TrsCounts request = {.mpi = MPI_REQUEST_NULL};

  PetscFunctionBegin;
  for (int64_t q = 0; q < n; q++) {
    copies->told[2 * q] = own->batch;
    copies->told[2 * q + 1] = own->jagged.n_values;
  }
  PetscCall(TrsCommCountsStart(copies->owners, 2, copies->told, &copies->told[2 * n], &request));
  PetscCall(TrsCommCountsWait(&request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Bring the owners' data together, one copy's after another's: `each` elements for each sample (what
  0) or id (what 1).
*/
static PetscErrorCode gather(TrsCopies *copies, const TrsDeviceOps *device, TrsStream stream, int what,
                             int64_t each, int64_t element_bytes, const void *own, TrsDeviceBuffer *all)
{
  TrsRequest request = NULL;
  int64_t n = 0;

  PetscFunctionBegin;
  for (int q = 0; q < copies->owners->size; q++) {
    copies->displs[q] = n;
    copies->counts[q] = told(copies, q, what) * each;
    n += copies->counts[q];
  }
  PetscCall(TrsDeviceBufferReserve(device, all, n * element_bytes));
  PetscCall(TrsCommAllgatherv(copies->owners, stream, own, all->data, copies->counts, copies->displs,
                              element_bytes, &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of ids in the feature of n bags that begins at `lengths`. */
static int64_t count_ids(const int32_t *lengths, int64_t n)
{
  int64_t sum = 0;

  for (int64_t b = 0; b < n; b++) sum += lengths[b];
  return sum;
}

/* Copy n elements. n may be 0, and the pointers NULL then. */
static void put(char *to, int64_t at, const void *from, int64_t from_at, int64_t n, int64_t bytes)
{
  if (n > 0) memcpy(to + at * bytes, (const char *)from + from_at * bytes, (size_t)(n * bytes));
}

/*
  Lay out the arrived ids feature by feature, in each feature copy by copy; and the gradients, too,
  if there is one for each id (row_bytes not 0).
*/
static void merge(TrsCopies *copies, int64_t row_bytes)
{
  const TrsJagged *merged = &copies->merged.jagged;
  int64_t bag = 0, id = 0;
  int64_t *at = copies->counts, *bag_at = copies->displs; /* next id and bag of each copy */

  for (int q = 0, n = copies->owners->size; q < n; q++) {
    at[q] = q ? at[q - 1] + told(copies, q - 1, 1) : 0;
    bag_at[q] = q ? bag_at[q - 1] + told(copies, q - 1, 0) * copies->merged.n_features : 0;
  }
  for (int f = 0; f < copies->merged.n_features; f++)
    for (int q = 0; q < copies->owners->size; q++) {
      const int32_t *lengths = (const int32_t *)copies->lengths.data;
      const int64_t bags = told(copies, q, 0), n = bags > 0 ? count_ids(lengths + bag_at[q], bags) : 0;

      put((char *)merged->lengths, bag, lengths, bag_at[q], bags, sizeof(*lengths));
      put((char *)merged->values, id, copies->values.data, at[q], n, sizeof(int64_t));
      if (copies->merged.is_weighted)
        put((char *)merged->weights, id, copies->weights.data, at[q], n, sizeof(float));
      if (row_bytes) put((char *)copies->ordered.data, id, copies->rows.data, at[q], n, row_bytes);
      bag += bags;
      id += n;
      bag_at[q] += bags;
      at[q] += n;
    }
}

/* Bring ids and gradients of all copies together. *all is set to the gradients. */
static PetscErrorCode bring_together(TrsCopies *copies, TrsSharding sharding, const TrsKjt *own,
                                     TrsStream stream, const float *grad, int64_t stride, const float **all)
{
  const TrsDeviceOps *device = sharding->context->device;
  const PetscBool by_id = (PetscBool)(sharding->update == &trs_update_owner_by_id);
  const int64_t row_bytes = stride * (int64_t)sizeof(float);

  PetscFunctionBegin;
  PetscCall(tell(copies, own));
  PetscCall(gather(copies, device, stream, 0, own->n_features, sizeof(int32_t), own->jagged.lengths,
                   &copies->lengths));
  PetscCall(gather(copies, device, stream, 1, 1, sizeof(int64_t), own->jagged.values, &copies->values));
  if (own->is_weighted)
    PetscCall(gather(copies, device, stream, 1, 1, sizeof(float), own->jagged.weights, &copies->weights));
  PetscCall(gather(copies, device, stream, by_id ? 1 : 0, 1, row_bytes, grad, &copies->rows));
  PetscCall(TrsKjtReserve(device, &copies->merged, own->n_features, told_by_all(copies, 0),
                          told_by_all(copies, 1), own->is_weighted));
  if (by_id) PetscCall(TrsDeviceBufferReserve(device, &copies->ordered, told_by_all(copies, 1) * row_bytes));
  merge(copies, by_id ? row_bytes : 0);
  PetscCall(TrsKjtOffsets(sharding->context->compute, stream, &copies->merged));
  *all = (const float *)(by_id ? copies->ordered.data : copies->rows.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopiesUpdate(TrsCopies *copies, TrsSharding sharding, TrsShardingSlot *slot,
                               TrsStream stream, const float *grad, int64_t stride,
                               const TrsSparseOptimizerArgs *args)
{
  const TrsKjt own = slot->recv;

  PetscFunctionBegin;
  if (own.n_features > 0) { /* the owners have the same shards, so this holds for all of them */
    PetscCall(bring_together(copies, sharding, &own, stream, grad, stride, &grad));
    slot->recv = copies->merged;
  }
  if (sharding->update_data && sharding->update->list)
    PetscCall(sharding->update->list(sharding, slot, stream));
  PetscCall(sharding->update->apply(sharding, slot, stream, grad, stride, args));
  slot->recv = own;
  PetscFunctionReturn(PETSC_SUCCESS);
}
