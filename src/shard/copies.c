/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/copies.h"

PetscErrorCode TrsCopiesCreate(TrsComm owners, TrsCopies *copies)
{
  PetscFunctionBegin;
  *copies = (TrsCopies){.owners = owners, .request = {.mpi = MPI_REQUEST_NULL}};
  if (!owners) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(owners->compute->workspace_create(&copies->workspace));
  PetscCall(PetscCalloc2((size_t)owners->size, &copies->counts, (size_t)owners->size, &copies->displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopiesFree(TrsCopies *copies)
{
  TrsDeviceBuffer *buffers[] = {&copies->rows, &copies->ordered, &copies->places, &copies->lengths};
  const TrsDeviceOps *device;

  PetscFunctionBegin;
  if (!copies->owners) PetscFunctionReturn(PETSC_SUCCESS);
  device = copies->owners->device;
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
    PetscCall(TrsDeviceBufferFree(device, buffers[i]));
  PetscCall(TrsKjtFree(device, &copies->arrived));
  PetscCall(TrsKjtFree(device, &copies->merged));
  PetscCall(TrsBufferFree(&copies->told));
  PetscCall(TrsBufferFree(&copies->block_begin));
  PetscCall(TrsBufferFree(&copies->order));
  PetscCall(PetscFree2(copies->counts, copies->displs));
  PetscCall(copies->owners->compute->workspace_destroy(&copies->workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What copy q has of group g: its samples (what 0) or its ids (what 1). */
static int64_t told(const TrsCopies *copies, int q, int g, int what)
{
  return ((const int64_t *)copies->told.data)[2 * ((copies->owners->size + q) * copies->n_told + g) + what];
}

static int64_t told_by_all(const TrsCopies *copies, int g, int what)
{
  int64_t n = 0;

  for (int q = 0; q < copies->owners->size; q++) n += told(copies, q, g, what);
  return n;
}

PetscErrorCode TrsCopiesTell(TrsCopies *copies, int n_groups, const TrsSharding *group, int slot)
{
  const int64_t n = 2 * (int64_t)n_groups, size = copies->owners->size;
  int64_t *own;

  PetscFunctionBegin;
  copies->n_told = n_groups;
  PetscCall(TrsBufferReserve(&copies->told, 2 * size * n * (int64_t)sizeof(*own), PETSC_FALSE));
  own = (int64_t *)copies->told.data;
  for (int64_t q = 0; q < size; q++)
    for (int g = 0; g < n_groups; g++, own += 2) {
      own[0] = group[g]->slot[slot].recv.batch;
      own[1] = group[g]->slot[slot].recv.jagged.n_values;
    }
  PetscCall(
      TrsCommCountsStart(copies->owners, (int)n, (const int64_t *)copies->told.data, own, &copies->request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Bring the owners' data of group g together, one copy's after another's: `each` elements for each
  sample (what 0) or id (what 1).
*/
static PetscErrorCode gather(TrsCopies *copies, TrsStream stream, int g, int what, int64_t each,
                             int64_t element_bytes, const void *own, void *all)
{
  TrsRequest request = NULL;
  int64_t n = 0;

  PetscFunctionBegin;
  for (int q = 0; q < copies->owners->size; q++) {
    copies->displs[q] = n;
    copies->counts[q] = told(copies, q, g, what) * each;
    n += copies->counts[q];
  }
  PetscCall(TrsCommAllgatherv(copies->owners, stream, own, all, copies->counts, copies->displs, element_bytes,
                              &request));
  PetscCall(TrsRequestWait(&request, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The blocks of bags that a feature has in a copy, as they arrive and in the order of `merged`. */
static PetscErrorCode set_blocks(TrsCopies *copies, int g, int n_features)
{
  const int size = copies->owners->size, n = size * n_features;
  int64_t *begin;
  int *order;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&copies->block_begin, (n + 1) * (int64_t)sizeof(*begin), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&copies->order, n * (int64_t)sizeof(*order), PETSC_FALSE));
  begin = (int64_t *)copies->block_begin.data;
  order = (int *)copies->order.data;
  begin[0] = 0;
  for (int q = 0; q < size; q++)
    for (int f = 0; f < n_features; f++) {
      const int block = q * n_features + f;

      begin[block + 1] = begin[block] + told(copies, q, g, 0);
      order[f * size + q] = block;
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lay out what arrived feature by feature, in each feature copy by copy. */
static PetscErrorCode permute(const TrsCopies *copies, TrsStream stream, const TrsJagged *from, TrsJagged *to)
{
  const int n = copies->owners->size * copies->arrived.n_features;

  PetscFunctionBegin;
  PetscCall(copies->owners->compute->permute_blocks(stream, copies->workspace, n,
                                                    (const int64_t *)copies->block_begin.data, n,
                                                    (const int *)copies->order.data, from, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lay out gradients that arrived, one for each id, as their ids. */
static PetscErrorCode order_rows(TrsCopies *copies, TrsStream stream, int64_t row_bytes)
{
  const TrsDeviceOps *device = copies->owners->device;
  TrsJagged from = copies->arrived.jagged, places = {.n_values = from.n_values};
  TrsRowsCopy copy = {
      .n = from.n_values, .row_bytes = row_bytes, .from_stride = row_bytes, .to_stride = row_bytes};

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(device, &copies->ordered, from.n_values * row_bytes));
  PetscCall(TrsDeviceBufferReserve(device, &copies->places, from.n_values * (int64_t)sizeof(*places.values)));
  PetscCall(TrsDeviceBufferReserve(device, &copies->lengths, from.n_bags * (int64_t)sizeof(*places.lengths)));
  from.values = NULL;
  from.weights = NULL;
  places.values = (int64_t *)copies->places.data;
  places.lengths = (int32_t *)copies->lengths.data;
  PetscCall(permute(copies, stream, &from, &places));
  copy.from = copies->rows.data;
  copy.from_index = (const int64_t *)copies->places.data;
  copy.to = copies->ordered.data;
  PetscCall(copies->owners->compute->copy_rows(stream, copies->workspace, 1, &copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Bring ids and gradients of all copies together. *all is set to the gradients. */
static PetscErrorCode bring_together(TrsCopies *copies, int g, const TrsKjt *own, PetscBool by_id,
                                     TrsStream stream, const float *grad, int64_t stride, const float **all)
{
  const TrsDeviceOps *device = copies->owners->device;
  const int64_t row_bytes = stride * (int64_t)sizeof(float), n_samples = told_by_all(copies, g, 0),
                n_ids = told_by_all(copies, g, 1);
  TrsKjt *arrived = &copies->arrived, *merged = &copies->merged;

  PetscFunctionBegin;
  PetscCall(TrsKjtReserve(device, arrived, own->n_features, n_samples, n_ids, own->is_weighted));
  PetscCall(TrsKjtReserve(device, merged, own->n_features, n_samples, n_ids, own->is_weighted));
  PetscCall(TrsDeviceBufferReserve(device, &copies->rows, (by_id ? n_ids : n_samples) * row_bytes));
  PetscCall(gather(copies, stream, g, 0, own->n_features, sizeof(int32_t), own->jagged.lengths,
                   arrived->jagged.lengths));
  PetscCall(gather(copies, stream, g, 1, 1, sizeof(int64_t), own->jagged.values, arrived->jagged.values));
  if (own->is_weighted)
    PetscCall(gather(copies, stream, g, 1, 1, sizeof(float), own->jagged.weights, arrived->jagged.weights));
  PetscCall(gather(copies, stream, g, by_id ? 1 : 0, 1, row_bytes, grad, copies->rows.data));
  PetscCall(TrsKjtOffsets(copies->owners->compute, stream, arrived));
  PetscCall(set_blocks(copies, g, own->n_features));
  PetscCall(permute(copies, stream, &arrived->jagged, &merged->jagged));
  if (by_id) PetscCall(order_rows(copies, stream, row_bytes));
  *all = (const float *)(by_id ? copies->ordered.data : copies->rows.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopiesUpdate(TrsCopies *copies, int g, TrsSharding sharding, TrsShardingSlot *slot,
                               TrsStream stream, const float *grad, int64_t stride,
                               const TrsSparseOptimizerArgs *args)
{
  const PetscBool by_id = (PetscBool)(sharding->update == &trs_update_owner_by_id);
  const TrsKjt own = slot->recv;

  PetscFunctionBegin;
  PetscCall(TrsCommCountsWait(&copies->request));
  if (own.n_features > 0) { /* the owners have the same shards, so this holds for all of them */
    PetscCall(bring_together(copies, g, &own, by_id, stream, grad, stride, &grad));
    slot->recv = copies->merged;
  }
  if (sharding->update_data && sharding->update->list)
    PetscCall(sharding->update->list(sharding, slot, stream));
  PetscCall(sharding->update->apply(sharding, slot, stream, grad, stride, args));
  slot->recv = own;
  PetscFunctionReturn(PETSC_SUCCESS);
}
