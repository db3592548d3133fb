/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Compute the offsets from the lengths, and check the lengths. */
static PetscErrorCode take_lengths(TrshardCollection c, const TrshardBatch *from, TrsKjt *kjt)
{
  const int64_t n_bags = c->n_features * from->batch;
  int64_t sum = 0;

  PetscFunctionBegin;
  for (int64_t bag = 0; bag < n_bags; bag++) {
    PetscCheck(from->lengths[bag] >= 0 && from->lengths[bag] <= from->n_values - sum, PETSC_COMM_SELF,
               TRS_ERR_DATA,
               "batch.lengths[%" PRId64 "] is %" PRId32 ", expected 0 to %" PRId64
               ", the values that are left of batch.n_values",
               bag, from->lengths[bag], from->n_values - sum);
    kjt->jagged.offsets[bag] = sum;
    kjt->jagged.lengths[bag] = from->lengths[bag];
    sum += from->lengths[bag];
  }
  PetscCheck(sum == from->n_values, PETSC_COMM_SELF, TRS_ERR_DATA,
             "batch.n_values is %" PRId64 ", but the lengths add up to %" PRId64, from->n_values, sum);
  kjt->jagged.offsets[n_bags] = sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the sample to which a value of feature f belongs. */
static int64_t sample_of(const TrsKjt *kjt, int f, int64_t value)
{
  int64_t sample = 0;

  while (kjt->jagged.offsets[f * kjt->batch + sample + 1] <= value) sample++;
  return sample;
}

/*
  Check the ids of feature f as its table's bounds_check_mode says. An id of -1 is skipped. An id
  outside of the table becomes row 0, unless the mode is fatal or none (src/RULES.md, rule A24).
*/
static PetscErrorCode check_ids(TrshardCollection c, int f, const TrsKjt *kjt)
{
  const TrsTableConfig *table = c->table_of[f];
  const int64_t *offsets = kjt->jagged.offsets + f * kjt->batch;
  int64_t *ids = kjt->jagged.values;

  PetscFunctionBegin;
  if (table->bounds_check_mode == TRS_BOUNDS_NONE) PetscFunctionReturn(PETSC_SUCCESS);
  for (int64_t i = offsets[0]; i < offsets[kjt->batch]; i++) {
    if ((uint64_t)ids[i] < (uint64_t)table->num_embeddings || ids[i] == -1) continue;
    PetscCheck(table->bounds_check_mode != TRS_BOUNDS_FATAL, PETSC_COMM_SELF, TRS_ERR_DATA,
               "table \"%s\", feature %d of the batch: sample %" PRId64 " has id %" PRId64
               ", expected 0 to %" PRId64 " (-bounds_check_mode warning replaces it by 0)",
               table->name, f, sample_of(kjt, f, i), ids[i], table->num_embeddings - 1);
    ids[i] = 0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiTakeBatch(TrshardCollection c, const TrshardBatch *from, TrsBatch *batch)
{
  TrsKjt *kjt = &batch->kjt;

  PetscFunctionBegin;
  PetscCheck(from->batch >= 0 && from->batch <= c->batch_size, PETSC_COMM_SELF, TRS_ERR_DATA,
             "batch.batch is %" PRId64 ", expected 0 to %" PRId64 ", the collection's batch_size",
             from->batch, c->batch_size);
  PetscCheck(from->n_values >= 0, PETSC_COMM_SELF, TRS_ERR_DATA, "batch.n_values is %" PRId64,
             from->n_values);
  PetscCheck((from->lengths || from->batch == 0) && (from->values || from->n_values == 0), PETSC_COMM_SELF,
             TRS_ERR_DATA, "batch.lengths or batch.values is NULL");
  PetscCheck(from->weights || !c->weighted || from->n_values == 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "batch.weights is NULL, but the collection has weighted tables");
  PetscCall(TrsKjtReserve(&c->host, kjt, c->n_features, from->batch, from->n_values, c->weighted));
  PetscCall(take_lengths(c, from, kjt));
  if (from->n_values)
    memcpy(kjt->jagged.values, from->values, (size_t)from->n_values * sizeof(*from->values));
  if (c->weighted && from->n_values)
    memcpy(kjt->jagged.weights, from->weights, (size_t)from->n_values * sizeof(*from->weights));
  for (int64_t i = 0; c->weighted && i < from->n_values; i++)
    PetscCheck(isfinite(from->weights[i]), PETSC_COMM_SELF, TRS_ERR_DATA,
               "batch.weights[%" PRId64 "] is %g, expected a finite number", i, (double)from->weights[i]);
  for (int f = 0; f < c->n_features; f++) {
    const int64_t *offsets = kjt->jagged.offsets + f * from->batch;

    if (c->map[f].kind == TRS_ID_MAP_NONE)
      PetscCall(check_ids(c, f, kjt));
    else
      TrsIdMapApply(&c->map[f], offsets[from->batch] - offsets[0], kjt->jagged.values + offsets[0]);
  }
  if (c->by_id) PetscCall(TrsApiRowsSpread(c, kjt));
  batch->batch = kjt->batch;
  PetscFunctionReturn(PETSC_SUCCESS);
}
