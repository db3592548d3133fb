/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard/copies.h"

PetscErrorCode TrsCopiesCreate(TrsComm owners, int n_groups, PetscBool alone, TrsCopies *copies)
{
  PetscFunctionBegin;
  *copies = (TrsCopies){.owners = owners, .n_groups = n_groups, .request = {.mpi = MPI_REQUEST_NULL}};
  if (!owners) PetscFunctionReturn(PETSC_SUCCESS);
  copies->early = (PetscBool)(alone || owners->ops->by_device);
  PetscCall(owners->compute->workspace_create(&copies->workspace));
  PetscCall(owners->device->stream_create("copies", &copies->stream));
  PetscCall(owners->device->event_create(&copies->begun));
  PetscCall(owners->device->event_create(&copies->merged));
  PetscCall(PetscCalloc1((size_t)n_groups, &copies->group));
  for (int g = 0; g < n_groups; g++)
    for (int i = 0; i < TRS_N_COPIED; i++)
      PetscCall(PetscCalloc2((size_t)owners->size, &copies->group[g].counts[i], (size_t)owners->size,
                             &copies->group[g].displs[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_group(const TrsDeviceOps *device, TrsCopiedGroup *c)
{
  TrsDeviceBuffer *buffers[] = {&c->rows, &c->ordered, &c->places, &c->lengths};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
    PetscCall(TrsDeviceBufferFree(device, buffers[i]));
  PetscCall(TrsKjtFree(device, &c->arrived));
  PetscCall(TrsKjtFree(device, &c->merged));
  PetscCall(TrsBufferFree(&c->block_begin));
  PetscCall(TrsBufferFree(&c->order));
  for (int i = 0; i < TRS_N_COPIED; i++) PetscCall(PetscFree2(c->counts[i], c->displs[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopiesFree(TrsCopies *copies)
{
  const TrsDeviceOps *device;

  PetscFunctionBegin;
  if (!copies->owners) PetscFunctionReturn(PETSC_SUCCESS);
  device = copies->owners->device;
  for (int g = 0; g < copies->n_groups; g++) PetscCall(free_group(device, &copies->group[g]));
  PetscCall(PetscFree(copies->group));
  PetscCall(TrsBufferFree(&copies->told));
  PetscCall(device->event_destroy(&copies->begun));
  PetscCall(device->event_destroy(&copies->merged));
  PetscCall(device->stream_destroy(&copies->stream));
  PetscCall(copies->owners->compute->workspace_destroy(&copies->workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of samples (what = 0) or ids (what = 1) of copy q in group g. */
static int64_t told(const TrsCopies *copies, int q, int g, int what)
{
  return ((const int64_t *)copies->told.data)[2 * ((copies->owners->size + q) * copies->n_groups + g) + what];
}

static int64_t told_by_all(const TrsCopies *copies, int g, int what)
{
  int64_t n = 0;

  for (int q = 0; q < copies->owners->size; q++) n += told(copies, q, g, what);
  return n;
}

PetscErrorCode TrsCopiesTell(TrsCopies *copies, const TrsSharding *group, int slot)
{
  const int64_t n = 2 * (int64_t)copies->n_groups, size = copies->owners->size;
  int64_t *own;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&copies->told, 2 * size * n * (int64_t)sizeof(*own), PETSC_FALSE));
  own = (int64_t *)copies->told.data;
  for (int64_t q = 0; q < size; q++)
    for (int g = 0; g < copies->n_groups; g++, own += 2) {
      own[0] = group[g]->slot[slot].recv.batch;
      own[1] = group[g]->slot[slot].recv.jagged.n_values;
    }
  PetscCall(
      TrsCommCountsStart(copies->owners, (int)n, (const int64_t *)copies->told.data, own, &copies->request));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- exchanges --- */

static PetscBool is_by_id(const TrsSharding sharding)
{
  return (PetscBool)(sharding->update == &trs_update_owner_by_id);
}

/*
  Start to gather data of group g from the owners, in the order of copies. Each owner sends `each`
  elements per sample (what = 0) or per id (what = 1).
*/
static PetscErrorCode gather_start(TrsCopies *copies, int g, TrsCopied kind, int what, int64_t each,
                                   int64_t element_bytes, const void *own, void *all)
{
  TrsCopiedGroup *c = &copies->group[g];
  int64_t n = 0;

  PetscFunctionBegin;
  for (int q = 0; q < copies->owners->size; q++) {
    c->displs[kind][q] = n;
    c->counts[kind][q] = told(copies, q, g, what) * each;
    n += c->counts[kind][q];
  }
  PetscCall(TrsCommAllgatherv(copies->owners, copies->stream, own, all, c->counts[kind], c->displs[kind],
                              element_bytes, &c->request[kind]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode start_ids(TrsCopies *copies, int g, const TrsKjt *own)
{
  const TrsDeviceOps *device = copies->owners->device;
  TrsKjt *arrived = &copies->group[g].arrived;

  PetscFunctionBegin;
  if (own->n_features == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsKjtReserve(device, arrived, own->n_features, told_by_all(copies, g, 0),
                          told_by_all(copies, g, 1), own->is_weighted));
  PetscCall(gather_start(copies, g, TRS_COPIED_LENGTHS, 0, own->n_features, sizeof(int32_t),
                         own->jagged.lengths, arrived->jagged.lengths));
  PetscCall(gather_start(copies, g, TRS_COPIED_VALUES, 1, 1, sizeof(int64_t), own->jagged.values,
                         arrived->jagged.values));
  if (own->is_weighted)
    PetscCall(gather_start(copies, g, TRS_COPIED_WEIGHTS, 1, 1, sizeof(float), own->jagged.weights,
                           arrived->jagged.weights));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Wait until the group's gradients have arrived in this copy. Then start to gather the gradients of
  all copies.
*/
static PetscErrorCode start_gradients(TrsCopies *copies, int g, TrsSharding sharding, TrsShardingSlot *slot,
                                      const TrsPooledMatrix *grad)
{
  const int what = is_by_id(sharding) ? 1 : 0;
  TrsCopiedGroup *c = &copies->group[g];
  TrsMatrix arrived = {.data = NULL};
  int64_t row_bytes;

  PetscFunctionBegin;
  PetscCall(sharding->ops->backward_wait(sharding, slot, copies->stream, grad, &arrived));
  c->grad = (const float *)arrived.data;
  c->stride = arrived.stride;
  if (slot->recv.n_features == 0) PetscFunctionReturn(PETSC_SUCCESS);
  row_bytes = c->stride * (int64_t)sizeof(float);
  PetscCall(
      TrsDeviceBufferReserve(copies->owners->device, &c->rows, told_by_all(copies, g, what) * row_bytes));
  PetscCall(gather_start(copies, g, TRS_COPIED_GRADIENTS, what, 1, row_bytes, c->grad, c->rows.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopiesStart(TrsCopies *copies, const TrsSharding *group, int slot, TrsStream stream,
                              const TrsPooledMatrix *grad)
{
  const TrsDeviceOps *device = copies->owners->device;

  PetscFunctionBegin;
  PetscCall(TrsCommCountsWait(&copies->request));
  /*
    Wait until the gradients are computed and the last step's updates have read the memory that is
    overwritten here.
  */
  PetscCall(device->event_record(copies->begun, stream));
  PetscCall(device->stream_wait(copies->stream, copies->begun));
  for (int g = 0; g < copies->n_groups; g++) PetscCall(start_ids(copies, g, &group[g]->slot[slot].recv));
  for (int g = 0; g < copies->n_groups && copies->early; g++)
    PetscCall(start_gradients(copies, g, group[g], &group[g]->slot[slot], grad));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- arrived ids and gradients --- */

/*
  For each feature and copy, find the block of bags: its first bag among the bags that arrived, and
  its position in `merged`.
*/
static PetscErrorCode set_blocks(TrsCopies *copies, int g, int n_features)
{
  const int size = copies->owners->size, n = size * n_features;
  TrsCopiedGroup *c = &copies->group[g];
  int64_t *begin;
  int *order;

  PetscFunctionBegin;
  PetscCall(TrsBufferReserve(&c->block_begin, (n + 1) * (int64_t)sizeof(*begin), PETSC_FALSE));
  PetscCall(TrsBufferReserve(&c->order, n * (int64_t)sizeof(*order), PETSC_FALSE));
  begin = (int64_t *)c->block_begin.data;
  order = (int *)c->order.data;
  begin[0] = 0;
  for (int q = 0; q < size; q++)
    for (int f = 0; f < n_features; f++) {
      const int block = q * n_features + f;

      begin[block + 1] = begin[block] + told(copies, q, g, 0);
      order[f * size + q] = block;
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Change the order of the data that arrived from [copy][feature] to [feature][copy]. */
static PetscErrorCode permute(const TrsCopies *copies, const TrsCopiedGroup *c, const TrsJagged *from,
                              TrsJagged *to)
{
  const int n = copies->owners->size * c->arrived.n_features;

  PetscFunctionBegin;
  PetscCall(copies->owners->compute->permute_blocks(copies->stream, copies->workspace, n,
                                                    (const int64_t *)c->block_begin.data, n,
                                                    (const int *)c->order.data, from, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode merge_ids(TrsCopies *copies, int g, const TrsKjt *own)
{
  TrsCopiedGroup *c = &copies->group[g];

  PetscFunctionBegin;
  for (int kind = 0; kind < TRS_COPIED_GRADIENTS; kind++)
    PetscCall(TrsRequestWait(&c->request[kind], copies->stream));
  PetscCall(TrsKjtReserve(copies->owners->device, &c->merged, own->n_features, told_by_all(copies, g, 0),
                          told_by_all(copies, g, 1), own->is_weighted));
  PetscCall(TrsKjtOffsets(copies->owners->compute, copies->stream, &c->arrived));
  PetscCall(set_blocks(copies, g, own->n_features));
  PetscCall(permute(copies, c, &c->arrived.jagged, &c->merged.jagged));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sort the gradients that arrived, one per id, into the order of the merged ids. */
static PetscErrorCode order_rows(TrsCopies *copies, TrsCopiedGroup *c)
{
  const TrsDeviceOps *device = copies->owners->device;
  const int64_t row_bytes = c->stride * (int64_t)sizeof(float);
  TrsJagged from = c->arrived.jagged, places = {.n_values = from.n_values};
  TrsRowsCopy copy = {
      .n = from.n_values, .row_bytes = row_bytes, .from_stride = row_bytes, .to_stride = row_bytes};

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(device, &c->ordered, from.n_values * row_bytes));
  PetscCall(TrsDeviceBufferReserve(device, &c->places, from.n_values * (int64_t)sizeof(*places.values)));
  PetscCall(TrsDeviceBufferReserve(device, &c->lengths, from.n_bags * (int64_t)sizeof(*places.lengths)));
  from.values = NULL;
  from.weights = NULL;
  places.values = (int64_t *)c->places.data;
  places.lengths = (int32_t *)c->lengths.data;
  PetscCall(permute(copies, c, &from, &places));
  copy.from = c->rows.data;
  copy.from_index = (const int64_t *)c->places.data;
  copy.to = c->ordered.data;
  PetscCall(copies->owners->compute->copy_rows(copies->stream, copies->workspace, 1, &copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  When the data of all copies has arrived, give the slot the sorted ids of all copies, and set *all
  to the gradients of all copies. All owners have the same shards, so either all of them have
  features or none of them has.
*/
static PetscErrorCode merge(TrsCopies *copies, int g, TrsSharding sharding, TrsShardingSlot *slot,
                            const TrsKjt *own, const float **all)
{
  TrsCopiedGroup *c = &copies->group[g];

  PetscFunctionBegin;
  *all = c->grad;
  if (own->n_features == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(merge_ids(copies, g, own));
  slot->recv = c->merged;
  if (sharding->update->sort) PetscCall(sharding->update->sort(sharding, slot, copies->stream));
  PetscCall(TrsRequestWait(&c->request[TRS_COPIED_GRADIENTS], copies->stream));
  if (is_by_id(sharding)) PetscCall(order_rows(copies, c));
  *all = (const float *)(is_by_id(sharding) ? c->ordered.data : c->rows.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Add this copy's gradients of position weights. Afterwards the dense layers' exchange adds up these
  gradients over all ranks. If several ranks have all ids of the copy, only rank 0 must add them.
*/
static PetscErrorCode add_position_gradients(const TrsCopiedGroup *c, TrsSharding sharding, const TrsKjt *own,
                                             TrsStream stream)
{
  const PetscBool repeated = (PetscBool)(sharding->ops == &trs_payload_ordered_replicas &&
                                         sharding->context->groups->world->rank > 0);

  PetscFunctionBegin;
  if (!repeated)
    PetscCall(TrsLookupPositionGradients(sharding->lookup, stream, own, TrsFloats(c->grad, c->stride)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode update_group(TrsCopies *copies, int g, TrsSharding sharding, TrsShardingSlot *slot,
                                   TrsStream stream, const TrsSparseOptimizerArgs *args)
{
  const TrsDeviceOps *device = copies->owners->device;
  const TrsCopiedGroup *c = &copies->group[g];
  const TrsKjt own = slot->recv;
  const float *all;

  PetscFunctionBegin;
  PetscCall(merge(copies, g, sharding, slot, &own, &all));
  PetscCall(device->event_record(copies->merged, copies->stream));
  PetscCall(device->stream_wait(stream, copies->merged));
  PetscCall(add_position_gradients(c, sharding, &own, stream));
  if (sharding->update_data && sharding->update->list)
    PetscCall(sharding->update->list(sharding, slot, stream));
  PetscCall(sharding->update->apply(sharding, slot, stream, TrsFloats(all, c->stride), args));
  PetscCall(TrsLookupEvaluated(sharding->lookup, stream, &own));
  slot->recv = own;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCopiesUpdate(TrsCopies *copies, const TrsSharding *group, int slot, TrsStream stream,
                               const TrsPooledMatrix *grad, const TrsSparseOptimizerArgs *args)
{
  PetscFunctionBegin;
  for (int g = 0; g < copies->n_groups && !copies->early; g++)
    PetscCall(start_gradients(copies, g, group[g], &group[g]->slot[slot], grad));
  for (int g = 0; g < copies->n_groups; g++)
    PetscCall(update_group(copies, g, group[g], &group[g]->slot[slot], stream, args));
  PetscFunctionReturn(PETSC_SUCCESS);
}
