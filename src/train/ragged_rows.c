/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/ragged_rows.h"

/* The bags of some samples: offsets [n + 1], rows, and the rows' gradients. */
typedef struct {
  /* a copy of the offsets, if the host needs them and cannot read the device's memory */
  TrsPinnedBuffer host;
  TrsDeviceBuffer offsets; /* int64 offsets */
  TrsDeviceBuffer rows, grads;
  int64_t n_rows;
} TrsRaggedBags;

typedef struct {
  int feature;
  PetscBool on_host; /* true: the host reads the offsets of the bags of this rank's samples */
  int64_t dim;
  TrsRaggedBags own, blocks;
} TrsRaggedFeature;

struct TrsRaggedRowsImpl {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  PetscBool training;
  int n;
  TrsRaggedFeature *feature; /* [n] */
  float **rows, **grads;     /* [features of all tables] addresses of each feature's matrices */
  TrsBagRows *own, *block;   /* [n] bags of this rank's samples, and of this rank's blocks */
  int64_t n_samples;         /* number of this rank's samples in the batch */
  TrsDeviceBuffer lengths;   /* int32 [samples, n] lengths of the bags */
  TrsPinnedBuffer host_lengths;
};

PetscErrorCode TrsRaggedRowsCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                   const TrsTableConfigs *tables, PetscBool training, TrsRaggedRows *ragged)
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
  r->compute = compute;
  r->training = training;
  PetscCall(PetscCalloc5((size_t)n, &r->feature, (size_t)n_features, &r->rows, (size_t)n_features, &r->grads,
                         (size_t)n, &r->own, (size_t)n, &r->block));
  for (int t = 0, f = 0; t < tables->n; f += tables->table[t++].n_features)
    for (int k = 0; k < tables->table[t].n_features; k++)
      if (TrsFeatureIsSequenceLayer(&tables->table[t], k))
        r->feature[r->n++] = (TrsRaggedFeature){
            .feature = f + k,
            .on_host = TrsSequenceReadsOffsets(tables->table[t].sequence_pooling),
            .dim = tables->table[t].embedding_dim};
  *ragged = r;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_bags(const TrsDeviceOps *device, TrsRaggedBags *bags)
{
  PetscFunctionBegin;
  PetscCall(TrsPinnedBufferFree(device, &bags->host));
  PetscCall(TrsDeviceBufferFree(device, &bags->offsets));
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
  PetscCall(TrsPinnedBufferFree(r->device, &r->host_lengths));
  PetscCall(PetscFree5(r->feature, r->rows, r->grads, r->own, r->block));
  PetscCall(PetscFree(*ragged));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Allocate memory for n_rows rows. In a training, also allocate memory for their gradients. */
static PetscErrorCode reserve_rows(TrsRaggedRows r, TrsRaggedBags *bags, int64_t n_rows, int64_t dim)
{
  const int64_t bytes = n_rows * dim * (int64_t)sizeof(float);

  PetscFunctionBegin;
  bags->n_rows = n_rows;
  PetscCall(TrsDeviceBufferReserveShared(r->device, &bags->rows, bytes));
  if (r->training) PetscCall(TrsDeviceBufferReserveShared(r->device, &bags->grads, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static TrsBagRows view_of(const TrsRaggedBags *bags)
{
  return (TrsBagRows){.n_rows = bags->n_rows,
                      .offsets = (const int64_t *)bags->offsets.data,
                      .rows = (const float *)bags->rows.data,
                      .grads = (float *)bags->grads.data};
}

/*
  Make the offsets of a feature's bags for this rank's samples, starting at 0. *n_rows is the number
  of rows.
*/
static PetscErrorCode own_offsets(TrsRaggedRows r, TrsStream stream, const TrsKjt *batch, int feature,
                                  int64_t *own, int64_t *n_rows)
{
  const int64_t B = batch->batch, *offsets = batch->jagged.offsets + feature * B;

  PetscFunctionBegin;
  if (r->device->host_memory) {
    for (int64_t b = 0; b <= B; b++) own[b] = offsets[b] - offsets[0];
    *n_rows = own[B];
  } else {
    PetscCall(r->compute->offsets(stream, B, batch->jagged.lengths + feature * B, own));
    *n_rows = batch->id_begin[feature + 1] - batch->id_begin[feature];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get the n + 1 offsets, in host memory. */
static const int64_t *host_offsets(TrsRaggedRows r, const TrsRaggedBags *bags)
{
  return (const int64_t *)(r->device->host_memory ? bags->offsets.data : bags->host.data);
}

/*
  If the host cannot read the device's memory, copy the offsets of this rank's bags to the host.
  Either copy all of them, or only those that the host uses.
*/
static PetscErrorCode fetch_offsets(TrsRaggedRows r, TrsStream stream, PetscBool all)
{
  const int64_t bytes = (r->n_samples + 1) * (int64_t)sizeof(int64_t);
  PetscBool any = PETSC_FALSE;

  PetscFunctionBegin;
  for (int i = 0; i < r->n && !r->device->host_memory; i++) {
    TrsRaggedBags *own = &r->feature[i].own;

    if (!all && !r->feature[i].on_host) continue;
    PetscCall(TrsPinnedBufferReserve(r->device, &own->host, bytes));
    PetscCall(r->device->copy(own->host.data, own->offsets.data, bytes, stream));
    any = PETSC_TRUE;
  }
  if (any) PetscCall(r->device->stream_synchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRaggedRowsBegin(TrsRaggedRows r, TrsStream stream, const TrsKjt *batch)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_ACTIVATIONS);

  PetscFunctionBegin;
  if (r) r->n_samples = batch->batch;
  for (int i = 0; r && i < r->n; i++) {
    TrsRaggedFeature *feature = &r->feature[i];
    int64_t n_rows = 0;

    PetscCall(TrsDeviceBufferReserve(r->device, &feature->own.offsets,
                                     (batch->batch + 1) * (int64_t)sizeof(int64_t)));
    PetscCall(own_offsets(r, stream, batch, feature->feature, (int64_t *)feature->own.offsets.data, &n_rows));
    PetscCall(reserve_rows(r, &feature->own, n_rows, feature->dim));
    r->own[i] = view_of(&feature->own);
    r->rows[feature->feature] = (float *)feature->own.rows.data;
    r->grads[feature->feature] = (float *)feature->own.grads.data;
  }
  if (r) PetscCall(fetch_offsets(r, stream, PETSC_FALSE));
  for (int i = 0; r && i < r->n; i++)
    if (r->feature[i].on_host) r->own[i].on_host = host_offsets(r, &r->feature[i].own);
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

/*
  Provide host memory for n lengths. It is the device's memory if the host can write it, otherwise
  memory for a copy.
*/
static PetscErrorCode reserve_lengths(TrsRaggedRows r, int64_t n, int32_t **lengths)
{
  const int64_t bytes = n * (int64_t)sizeof(**lengths);

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserveShared(r->device, &r->lengths, bytes));
  if (!r->device->host_memory) PetscCall(TrsPinnedBufferReserve(r->device, &r->host_lengths, bytes));
  *lengths = (int32_t *)(r->device->host_memory ? r->lengths.data : r->host_lengths.data);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Make the offsets of feature i for the n bags of this rank's blocks, from the lengths of all
  features.
*/
static PetscErrorCode block_offsets(TrsRaggedRows r, TrsStream stream, int i, int64_t n,
                                    const int32_t *lengths)
{
  TrsRaggedBags *bags = &r->feature[i].blocks;
  const int64_t bytes = (n + 1) * (int64_t)sizeof(int64_t);
  int64_t *offsets;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(r->device, &bags->offsets, bytes));
  if (!r->device->host_memory) PetscCall(TrsPinnedBufferReserve(r->device, &bags->host, bytes));
  offsets = (int64_t *)(r->device->host_memory ? bags->offsets.data : bags->host.data);
  offsets[0] = 0;
  for (int64_t b = 0; b < n; b++) offsets[b + 1] = offsets[b] + lengths[b * r->n + i];
  if (!r->device->host_memory) PetscCall(r->device->copy(bags->offsets.data, offsets, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Send the lengths of bags to the ranks of their blocks, and make the offsets for the bags of this
  rank's blocks.
*/
static PetscErrorCode send_lengths(TrsRaggedRows r, TrsSampleBlocks blocks, TrsStream stream, int64_t n)
{
  const int64_t bytes = r->n_samples * r->n * (int64_t)sizeof(int32_t);
  const float *arrived;
  int32_t *lengths;

  PetscFunctionBegin;
  PetscCall(fetch_offsets(r, stream, PETSC_TRUE));
  PetscCall(reserve_lengths(r, r->n_samples * r->n, &lengths));
  for (int i = 0; i < r->n; i++) {
    const int64_t *offsets = host_offsets(r, &r->feature[i].own);

    for (int64_t b = 0; b < r->n_samples; b++) lengths[b * r->n + i] = (int32_t)(offsets[b + 1] - offsets[b]);
  }
  if (!r->device->host_memory) PetscCall(r->device->copy(r->lengths.data, lengths, bytes, stream));
  /* An int32 length and a float both have 4 bytes, so the exchange of floats sends the lengths. */
  PetscCall(
      TrsSampleBlocksSend(blocks, stream, TRS_BLOCK_LENGTHS, r->n, (const float *)r->lengths.data, &arrived));
  if (!r->device->host_memory) {
    /* wait, because the lengths are sent from this memory */
    PetscCall(r->device->stream_synchronize(stream));
    PetscCall(reserve_lengths(r, PetscMax(n, r->n_samples) * r->n, &lengths));
    PetscCall(r->device->copy(lengths, arrived, n * r->n * (int64_t)sizeof(*lengths), stream));
    PetscCall(r->device->stream_synchronize(stream));
  }
  for (int i = 0; i < r->n; i++)
    PetscCall(block_offsets(r, stream, i, n,
                            r->device->host_memory ? (const int32_t *)(const void *)arrived : lengths));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRaggedRowsToBlocks(TrsRaggedRows r, TrsSampleBlocks blocks, TrsStream stream, int64_t n)
{
  PetscFunctionBegin;
  PetscCall(send_lengths(r, blocks, stream, n));
  for (int i = 0; i < r->n; i++) {
    TrsRaggedFeature *f = &r->feature[i];
    const int64_t *offsets = host_offsets(r, &f->blocks);

    PetscCall(reserve_rows(r, &f->blocks, offsets[n], f->dim));
    PetscCall(TrsSampleBlocksSendRagged(blocks, stream, f->dim, host_offsets(r, &f->own), r->own[i].rows,
                                        offsets, (float *)f->blocks.rows.data));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRaggedRowsFromBlocks(TrsRaggedRows r, TrsSampleBlocks blocks, TrsStream stream)
{
  PetscFunctionBegin;
  for (int i = 0; i < r->n; i++) {
    TrsRaggedFeature *f = &r->feature[i];

    PetscCall(TrsSampleBlocksReturnRagged(blocks, stream, f->dim, host_offsets(r, &f->blocks),
                                          (const float *)f->blocks.grads.data, host_offsets(r, &f->own),
                                          r->own[i].grads));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsBagRows *TrsRaggedRowsOfBlock(TrsRaggedRows r, int64_t begin, int64_t n)
{
  for (int i = 0; i < r->n; i++) {
    const int64_t *offsets = host_offsets(r, &r->feature[i].blocks);

    r->block[i] = view_of(&r->feature[i].blocks);
    r->block[i].offsets += begin;
    r->block[i].on_host = offsets + begin;
    r->block[i].first = offsets[begin];
    r->block[i].n_rows = offsets[begin + n] - offsets[begin];
  }
  return r->block;
}
