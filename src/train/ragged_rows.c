/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/ragged_rows.h"

/* The bags of some samples: offsets [n + 1], and rows with their gradients. */
typedef struct {
  TrsBuffer offsets;
  TrsDeviceBuffer rows, grads;
} TrsRaggedBags;

typedef struct {
  int feature;
  int64_t dim;
  TrsRaggedBags own, blocks;
} TrsRaggedFeature;

struct TrsRaggedRowsImpl {
  const TrsDeviceOps *device;
  PetscBool training;
  int n;
  TrsRaggedFeature *feature; /* [n] */
  float **rows, **grads;     /* [features of all tables] */
  TrsBagRows *own, *block;   /* [n] */
  int64_t n_samples;         /* own samples of the batch */
  TrsDeviceBuffer lengths;   /* int32 [samples, n] */
};

PetscErrorCode TrsRaggedRowsCreate(const TrsDeviceOps *device, const TrsTableConfigs *tables,
                                   PetscBool training, TrsRaggedRows *ragged)
{
  int n = 0, n_features = 0;
  TrsRaggedRows r;

  PetscFunctionBegin;
  *ragged = NULL;
  for (int t = 0; t < tables->n; t++) {
    n_features += tables->table[t].n_features;
    for (int k = 0; k < tables->table[t].n_features; k++)
      if (TrsFeatureIsSequenceLayer(&tables->table[t], k)) n++;
  }
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&r));
  r->device = device;
  r->training = training;
  PetscCall(PetscCalloc5((size_t)n, &r->feature, (size_t)n_features, &r->rows, (size_t)n_features, &r->grads,
                         (size_t)n, &r->own, (size_t)n, &r->block));
  for (int t = 0, f = 0; t < tables->n; f += tables->table[t++].n_features)
    for (int k = 0; k < tables->table[t].n_features; k++)
      if (TrsFeatureIsSequenceLayer(&tables->table[t], k))
        r->feature[r->n++] = (TrsRaggedFeature){.feature = f + k, .dim = tables->table[t].embedding_dim};
  *ragged = r;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_bags(const TrsDeviceOps *device, TrsRaggedBags *bags)
{
  PetscFunctionBegin;
  PetscCall(TrsBufferFree(&bags->offsets));
  PetscCall(TrsDeviceBufferFree(device, &bags->rows));
  PetscCall(TrsDeviceBufferFree(device, &bags->grads));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRaggedRowsDestroy(TrsRaggedRows *ragged)
{
  TrsRaggedRows r = *ragged;

  PetscFunctionBegin;
  if (!r) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < r->n; i++) {
    PetscCall(free_bags(r->device, &r->feature[i].own));
    PetscCall(free_bags(r->device, &r->feature[i].blocks));
  }
  PetscCall(TrsDeviceBufferFree(r->device, &r->lengths));
  PetscCall(PetscFree5(r->feature, r->rows, r->grads, r->own, r->block));
  PetscCall(PetscFree(*ragged));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Make room for n_rows rows, and for their gradients in a training. */
static PetscErrorCode reserve_rows(TrsRaggedRows r, TrsRaggedBags *bags, int64_t n_rows, int64_t dim)
{
  const int64_t bytes = n_rows * dim * (int64_t)sizeof(float);

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(r->device, &bags->rows, bytes));
  if (r->training) PetscCall(TrsDeviceBufferReserveShared(r->device, &bags->grads, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsBagRows view_of(const TrsRaggedBags *bags, int64_t begin)
{
  return (TrsBagRows){.offsets = (const int64_t *)bags->offsets.data + begin,
                      .rows = (const float *)bags->rows.data,
                      .grads = (float *)bags->grads.data};
}

PetscErrorCode TrsRaggedRowsBegin(TrsRaggedRows r, const TrsKjt *batch)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_ACTIVATIONS);

  PetscFunctionBegin;
  if (r) r->n_samples = batch->batch;
  for (int i = 0; r && i < r->n; i++) {
    TrsRaggedFeature *feature = &r->feature[i];
    const int64_t *offsets = batch->jagged.offsets + feature->feature * batch->batch;
    int64_t *own;

    PetscCall(
        TrsBufferReserve(&feature->own.offsets, (batch->batch + 1) * (int64_t)sizeof(*own), PETSC_FALSE));
    own = (int64_t *)feature->own.offsets.data;
    for (int64_t b = 0; b <= batch->batch; b++) own[b] = offsets[b] - offsets[0];
    PetscCall(reserve_rows(r, &feature->own, own[batch->batch], feature->dim));
    r->own[i] = view_of(&feature->own, 0);
    r->rows[feature->feature] = (float *)feature->own.rows.data;
    r->grads[feature->feature] = (float *)feature->own.grads.data;
  }
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

float *const *TrsRaggedRowsById(TrsRaggedRows r, PetscBool gradients)
{
  if (!r) return NULL;
  return gradients ? r->grads : r->rows;
}

const TrsBagRows *TrsRaggedRowsBags(TrsRaggedRows r)
{
  return r ? r->own : NULL;
}

/* Tell the blocks' ranks the lengths of the bags, and make the offsets of my blocks' bags. */
static PetscErrorCode send_lengths(TrsRaggedRows r, TrsSampleBlocks blocks, TrsStream stream, int64_t n)
{
  const int32_t *received;
  int32_t *lengths;
  const float *arrived;

  PetscFunctionBegin;
  PetscCall(
      TrsDeviceBufferReserveShared(r->device, &r->lengths, r->n_samples * r->n * (int64_t)sizeof(*lengths)));
  lengths = (int32_t *)r->lengths.data;
  for (int i = 0; i < r->n; i++)
    for (int64_t b = 0; b < r->n_samples; b++)
      lengths[b * r->n + i] = (int32_t)(r->own[i].offsets[b + 1] - r->own[i].offsets[b]);
  /* a length has the bytes of a float */
  PetscCall(
      TrsSampleBlocksSend(blocks, stream, TRS_BLOCK_LENGTHS, r->n, (const float *)r->lengths.data, &arrived));
  received = (const int32_t *)(const void *)arrived;
  for (int i = 0; i < r->n; i++) {
    TrsBuffer *buffer = &r->feature[i].blocks.offsets;
    int64_t *offsets;

    PetscCall(TrsBufferReserve(buffer, (n + 1) * (int64_t)sizeof(*offsets), PETSC_FALSE));
    offsets = (int64_t *)buffer->data;
    offsets[0] = 0;
    for (int64_t b = 0; b < n; b++) offsets[b + 1] = offsets[b] + received[b * r->n + i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRaggedRowsToBlocks(TrsRaggedRows r, TrsSampleBlocks blocks, TrsStream stream, int64_t n)
{
  PetscFunctionBegin;
  PetscCall(send_lengths(r, blocks, stream, n));
  for (int i = 0; i < r->n; i++) {
    TrsRaggedFeature *f = &r->feature[i];
    const int64_t *offsets = (const int64_t *)f->blocks.offsets.data;

    PetscCall(reserve_rows(r, &f->blocks, offsets[n], f->dim));
    PetscCall(TrsSampleBlocksSendRagged(blocks, stream, f->dim, r->own[i].offsets, r->own[i].rows, offsets,
                                        (float *)f->blocks.rows.data));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRaggedRowsFromBlocks(TrsRaggedRows r, TrsSampleBlocks blocks, TrsStream stream)
{
  PetscFunctionBegin;
  for (int i = 0; i < r->n; i++) {
    TrsRaggedFeature *f = &r->feature[i];

    PetscCall(TrsSampleBlocksReturnRagged(blocks, stream, f->dim, (const int64_t *)f->blocks.offsets.data,
                                          (const float *)f->blocks.grads.data, r->own[i].offsets,
                                          r->own[i].grads));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsBagRows *TrsRaggedRowsOfBlock(TrsRaggedRows r, int64_t begin)
{
  for (int i = 0; i < r->n; i++) r->block[i] = view_of(&r->feature[i].blocks, begin);
  return r->block;
}
