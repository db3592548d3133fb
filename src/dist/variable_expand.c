/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Expansion by inverse indices. It is a lookup: each feature's block of bags' rows is a table, and
  each sample is a bag with one id. The backward, a scatter-add, is a step of gradient descent that
  starts at zeros, with learning rate -1.
*/
#include "dist/variable_batch.h"

struct TrsVariableExpandImpl {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  int n_features;
  TrsTbeTable *table;           /* [n_features] */
  TrsTbeFeature *feature;       /* [n_features] */
  TrsWorkspace workspace, sort; /* sort is for sorts before a backward; NULL if there are none */
  TrsBuffer counting;           /* int64 numbers 0, 1, 2, ... */
  TrsDeviceBuffer offsets;      /* the numbers of `counting`, copied to the device */
  int64_t n_offsets;
};

PetscErrorCode TrsVariableExpandCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                       int n_features, const int64_t *dims, const int64_t *columns,
                                       TrsVariableExpand *expand)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(expand));
  (*expand)->device = device;
  (*expand)->compute = compute;
  (*expand)->n_features = n_features;
  PetscCall(PetscCalloc1((size_t)n_features, &(*expand)->table));
  PetscCall(PetscCalloc1((size_t)n_features, &(*expand)->feature));
  for (int f = 0; f < n_features; f++) {
    (*expand)->table[f] = (TrsTbeTable){
        .stride = dims[f], .dim = (int32_t)dims[f], .dtype = TRS_FP32, .table_dim = dims[f]};
    (*expand)->feature[f] = (TrsTbeFeature){.table = f, .out_column = columns[f]};
  }
  PetscCall(compute->workspace_create(&(*expand)->workspace));
  if (compute->tbe_find_occurrences) PetscCall(compute->workspace_create(&(*expand)->sort));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableExpandDestroy(TrsVariableExpand *expand)
{
  PetscFunctionBegin;
  if (!*expand) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((*expand)->compute->workspace_destroy(&(*expand)->workspace));
  PetscCall((*expand)->compute->workspace_destroy(&(*expand)->sort));
  PetscCall(TrsDeviceBufferFree((*expand)->device, &(*expand)->offsets));
  PetscCall(TrsBufferFree(&(*expand)->counting));
  PetscCall(PetscFree((*expand)->table));
  PetscCall(PetscFree((*expand)->feature));
  PetscCall(PetscFree(*expand));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the offsets of bags that have one id each: the n + 1 numbers 0, 1, 2, ... */
static PetscErrorCode reserve_offsets(TrsVariableExpand expand, TrsStream stream, int64_t n)
{
  const int64_t bytes = (n + 1) * (int64_t)sizeof(int64_t);
  int64_t *counting;

  PetscFunctionBegin;
  if (n < expand->n_offsets) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsBufferReserve(&expand->counting, bytes, PETSC_FALSE));
  counting = (int64_t *)expand->counting.data;
  for (int64_t i = 0; i <= n; i++) counting[i] = i;
  PetscCall(TrsDeviceBufferReserve(expand->device, &expand->offsets, bytes));
  PetscCall(expand->device->copy(expand->offsets.data, counting, bytes, stream));
  if (!expand->device->host_memory)
    PetscCall(expand->device->stream_synchronize(stream)); /* other streams also read the offsets */
  expand->n_offsets = n + 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Describe the blocks of `flat` as tables, and the samples as bags. */
static PetscErrorCode view_lookup(TrsVariableExpand expand, TrsStream stream, int64_t batch,
                                  const int64_t *inverse, float *flat, const int64_t *feature_displs,
                                  TrsTbe *tbe, TrsTbeInput *input)
{
  const int64_t n = expand->n_features * batch;

  PetscFunctionBegin;
  PetscCall(reserve_offsets(expand, stream, n));
  for (int f = 0; f < expand->n_features; f++) {
    expand->table[f].weight = flat + feature_displs[f];
    expand->table[f].rows = (feature_displs[f + 1] - feature_displs[f]) / expand->table[f].dim;
  }
  *tbe = (TrsTbe){.n_tables = expand->n_features,
                  .n_features = expand->n_features,
                  .table = expand->table,
                  .feature = expand->feature};
  *input = (TrsTbeInput){
      .batch = batch, .offsets = (const int64_t *)expand->offsets.data, .values = inverse, .n_values = n};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableExpandForward(TrsVariableExpand expand, TrsStream stream, int64_t batch,
                                        const int64_t *inverse, const float *flat,
                                        const int64_t *feature_displs, float *matrix, int64_t stride)
{
  union {
    const float *read;
    float *write;
  } rows = {.read = flat}; /* the weight of a table is not const, but the lookup only reads it */
  TrsTbeInput input;
  TrsTbe tbe;

  PetscFunctionBegin;
  PetscCall(view_lookup(expand, stream, batch, inverse, rows.write, feature_displs, &tbe, &input));
  PetscCall(expand->compute->tbe_forward(stream, expand->workspace, &tbe, &input, TrsFloats(matrix, stride)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableExpandSort(TrsVariableExpand expand, TrsStream stream, int64_t batch,
                                     const int64_t *inverse, const int64_t *feature_displs,
                                     TrsTbeOccurrences *occurrences)
{
  TrsMemoryKind before;
  TrsTbeInput input;
  TrsTbe tbe;

  PetscFunctionBegin;
  if (!expand->sort || batch == 0) PetscFunctionReturn(PETSC_SUCCESS);
  before = TrsMemoryFor(TRS_MEMORY_SCRATCH);
  PetscCall(reserve_offsets(expand, stream, expand->n_features * batch));
  /* offsets.data stands for the memory of the gradients, which has the same alignment; a sort
     does not read it */
  PetscCall(view_lookup(expand, stream, batch, inverse, (float *)expand->offsets.data, feature_displs, &tbe,
                        &input));
  PetscCall(
      expand->compute->tbe_find_occurrences(stream, expand->sort, &tbe, &input, TRS_TBE_BY_BAG, occurrences));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsVariableExpandBackward(TrsVariableExpand expand, TrsStream stream, int64_t batch,
                                         const int64_t *inverse, TrsTbeOccurrences occurrences,
                                         const float *grad_matrix, int64_t stride, float *grad_flat,
                                         const int64_t *feature_displs)
{
  const TrsSparseOptimizerArgs add = {.kind = TRS_OPTIM_SGD, .learning_rate = -1.0F, .step = 1};
  const int64_t n = feature_displs[expand->n_features];
  TrsTbeInput input;
  TrsTbe tbe;

  PetscFunctionBegin;
  PetscCall(view_lookup(expand, stream, batch, inverse, grad_flat, feature_displs, &tbe, &input));
  input.occurrences = occurrences;
  if (n > 0) PetscCall(expand->device->zero(grad_flat, n * (int64_t)sizeof(*grad_flat), stream));
  PetscCall(expand->compute->tbe_backward(stream, expand->workspace, &tbe, &input,
                                          TrsFloats(grad_matrix, stride), &add));
  PetscFunctionReturn(PETSC_SUCCESS);
}
