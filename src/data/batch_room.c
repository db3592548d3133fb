/* SPDX-License-Identifier: BSD-3-Clause */
#include "data/batch_room.h"

#include <string.h>

/* Round up, because each array in a batch's memory begins at a multiple of 64 bytes. */
static int64_t aligned(int64_t bytes)
{
  return (bytes + 63) / 64 * 64;
}

/*
  If `wanted`, return the next `bytes` bytes of a batch's memory, and advance *at. If memory is
  NULL, only advance *at.
*/
static void *take(char *memory, int64_t *at, PetscBool wanted, size_t bytes)
{
  void *taken = memory && wanted ? memory + *at : NULL;

  if (wanted) *at += aligned((int64_t)bytes);
  return taken;
}

/*
  Set the addresses of arrays in a batch's memory: first the arrays that only the host uses, then
  the arrays that a device copies, and last the ids. Returns the number of bytes before the ids.
*/
static int64_t lay_out(const TrsBatchSpec *spec, int64_t max_batch, char *memory, TrsFileSamples *file,
                       TrsBatch *batch)
{
  const size_t B = (size_t)max_batch, num_dense = (size_t)spec->info->num_dense;
  const size_t n_keys = (size_t)spec->info->n_features;
  const PetscBool device = spec->for_device;
  int64_t at = 0;

  batch->group = take(memory, &at, spec->with_group, B * sizeof(int64_t));
  batch->time = take(memory, &at, spec->with_time, B * sizeof(int64_t));
  file->id_begin = take(memory, &at, device, ((size_t)spec->n + 1 + n_keys) * sizeof(int64_t));
  batch->odd = take(memory, &at, device, sizeof(int32_t));
  batch->memory = device && memory ? memory + at : NULL;
  batch->dense = take(memory, &at, (PetscBool)(num_dense > 0), B * num_dense * sizeof(float));
  batch->labels = take(memory, &at, spec->with_labels, B * (size_t)spec->n_labels * sizeof(float));
  batch->weights = take(memory, &at, spec->with_sample_weights, B * sizeof(float));
  file->start = take(memory, &at, device, (B + 1) * sizeof(int64_t));
  file->sample = take(memory, &at, (PetscBool)(device && spec->is_shuffled), B * sizeof(int32_t));
  file->lengths = take(memory, &at, device, B * n_keys * sizeof(int32_t));
  file->values = device && memory ? memory + at : NULL;
  return at;
}

PetscErrorCode TrsBatchRoomReserve(const TrsBatchSpec *spec, const TrsDeviceOps *memory, int64_t max_batch,
                                   int64_t n_values, TrsBatchRoom *room, TrsBatch *batch)
{
  const int64_t before = lay_out(spec, max_batch, NULL, &room->file, batch);
  TrsDeviceBuffer grown = {.data = NULL};

  PetscFunctionBegin;
  if (spec->for_device) {
    int64_t bytes = before + aligned(n_values * spec->info->value_bytes);

    if (spec->with_weights) bytes += n_values * (int64_t)sizeof(float);
    PetscCall(TrsDeviceBufferReserve(memory, &grown, bytes));
    if (room->memory.data) memcpy(grown.data, room->memory.data, (size_t)before);
    PetscCall(TrsDeviceBufferFree(memory, &room->memory));
    room->memory = grown;
  } else {
    PetscCall(TrsDeviceBufferReserve(memory, &room->memory, before));
    PetscCall(TrsKjtReserve(memory, &batch->kjt, spec->n, max_batch,
                            spec->has_twins ? 2 * n_values : n_values, spec->with_weights));
  }
  (void)lay_out(spec, max_batch, room->memory.data, &room->file, batch);
  room->n_values = n_values;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBatchRoomFree(const TrsDeviceOps *memory, TrsBatchRoom *room, TrsBatch *batch)
{
  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferFree(memory, &room->memory));
  PetscCall(TrsKjtFree(memory, &batch->kjt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsBatchRoomUse(const TrsBatchSpec *spec, TrsBatchRoom *room, TrsBatchScratch *scratch, TrsBatch *batch)
{
  char *weights; /* weights of the ids */

  if (!spec->for_device) return;
  weights = (char *)room->file.values + aligned(scratch->n_values * spec->info->value_bytes);
  batch->memory_bytes = weights - (const char *)batch->memory;
  if (spec->with_weights) {
    room->file.weights = (float *)(void *)weights;
    batch->memory_bytes += scratch->n_values * (int64_t)sizeof(float);
  }
  scratch->file = room->file;
}

PetscErrorCode TrsBatchScratchCreate(const TrsBatchSpec *spec, int64_t max_batch, TrsBatchScratch *scratch)
{
  TrsFileSamples *file = &scratch->file;

  PetscFunctionBegin;
  memset(scratch, 0, sizeof(*scratch));
  PetscCall(TrsAlloc(max_batch, sizeof(*scratch->sample), &scratch->sample));
  PetscCall(TrsAlloc(max_batch, sizeof(*scratch->run), &scratch->run));
  PetscCall(TrsAlloc(max_batch * spec->info->dense_columns, sizeof(*scratch->dense), &scratch->dense));
  PetscCall(TrsAlloc(max_batch * spec->info->n_labels, sizeof(*scratch->labels), &scratch->labels));
  PetscCall(TrsAlloc(max_batch * spec->n_labels, sizeof(*scratch->taken), &scratch->taken));
  PetscCall(TrsAlloc(max_batch, sizeof(*scratch->sample_weights), &scratch->sample_weights));
  if (spec->with_group) PetscCall(TrsAlloc(max_batch, sizeof(*scratch->group), &scratch->group));
  if (spec->with_time) PetscCall(TrsAlloc(max_batch, sizeof(*scratch->time), &scratch->time));
  PetscCall(TrsAlloc(2 * max_batch, sizeof(*scratch->offsets), &scratch->offsets));
  if (spec->for_device) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsAlloc(max_batch * spec->info->n_features, sizeof(*file->lengths), &file->lengths));
  PetscCall(TrsAlloc(max_batch + 1, sizeof(*file->start), &file->start));
  PetscCall(TrsAlloc(max_batch, sizeof(*file->sample), &file->sample));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBatchScratchReserve(const TrsBatchSpec *spec, TrsBatchScratch *scratch, int64_t n_values)
{
  PetscFunctionBegin;
  scratch->most_values = n_values;
  if (spec->for_device) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsBufferReserve(&scratch->values, n_values * spec->info->value_bytes, PETSC_FALSE));
  if (spec->with_weights)
    PetscCall(TrsBufferReserve(&scratch->weights, n_values * (int64_t)sizeof(float), PETSC_FALSE));
  scratch->file.values = scratch->values.data;
  scratch->file.weights = scratch->weights.data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsBatchScratchFree(const TrsBatchSpec *spec, TrsBatchScratch *scratch)
{
  TrsFileSamples *file = &scratch->file;

  PetscFunctionBegin;
  PetscCall(TrsFree(&scratch->sample));
  PetscCall(TrsFree(&scratch->run));
  PetscCall(TrsFree(&scratch->dense));
  PetscCall(TrsFree(&scratch->labels));
  PetscCall(TrsFree(&scratch->taken));
  PetscCall(TrsFree(&scratch->sample_weights));
  PetscCall(TrsFree(&scratch->group));
  PetscCall(TrsFree(&scratch->time));
  PetscCall(TrsFree(&scratch->offsets));
  if (spec->for_device) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsFree(&file->lengths));
  PetscCall(TrsFree(&file->start));
  PetscCall(TrsFree(&file->sample));
  PetscCall(TrsBufferFree(&scratch->values));
  PetscCall(TrsBufferFree(&scratch->weights));
  PetscFunctionReturn(PETSC_SUCCESS);
}
