/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Collections that return a row for each id (TorchRec's EmbeddingCollection), and copies of
  gradients.
*/
#include "api/impl.h"
#include "compute/gemm.h"

PetscErrorCode TrsApiRowsCreate(TrshardCollection c)
{
  PetscFunctionBegin;
  PetscCall(c->machine.compute->workspace_create(&c->workspace));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiRowsDestroy(TrshardCollection c)
{
  PetscFunctionBegin;
  if (c->workspace) PetscCall(c->machine.compute->workspace_destroy(&c->workspace));
  if (c->places.data) PetscCall(TrsDeviceBufferFree(c->machine.device, &c->places));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Count the ids of feature f. */
static int64_t ids_of(const TrsKjt *kjt, int f)
{
  return kjt->jagged.offsets[(f + 1) * kjt->batch] - kjt->jagged.offsets[f * kjt->batch];
}

PetscErrorCode TrsApiRowsSpread(TrshardCollection c, TrsKjt *kjt)
{
  int64_t *n, bags = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(c->n_features, &n));
  for (int f = 0; f < c->n_features; f++) {
    n[f] = ids_of(kjt, f);
    bags = PetscMax(bags, n[f]);
  }
  /* the number of values does not change, so they need not move */
  PetscCall(TrsKjtReserve(&c->host, kjt, c->n_features, bags, kjt->jagged.n_values, PETSC_FALSE));
  kjt->jagged.offsets[0] = 0;
  for (int f = 0; f < c->n_features; f++)
    for (int64_t b = 0; b < bags; b++) {
      const int64_t bag = f * bags + b;

      kjt->jagged.lengths[bag] = b < n[f];
      kjt->jagged.offsets[bag + 1] = kjt->jagged.offsets[bag] + kjt->jagged.lengths[bag];
    }
  PetscCall(PetscFree(n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiPlaces(TrshardCollection c, int slot, TrsPooledMatrix *matrix)
{
  const int64_t stride = c->places_width, bags = c->slot[slot].batch.kjt.batch;

  PetscFunctionBegin;
  PetscCall(TrsDeviceBufferReserve(c->machine.device, &c->places,
                                   PetscMax(bags, 1) * stride * (int64_t)sizeof(float)));
  *matrix = (TrsPooledMatrix){.rows = TrsFloats((const float *)c->places.data, stride),
                              .columns = c->places_columns};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiRowsCopy(TrshardCollection c, int slot, float *rows, int64_t stride, PetscBool to_caller)
{
  const TrsKjt *kjt = &c->slot[slot].batch.kjt;
  const int64_t own_stride = c->places_width;
  TrsRowsCopy *copy;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(c->n_features, &copy));
  for (int f = 0; f < c->n_features; f++) {
    float *theirs = rows + kjt->jagged.offsets[f * kjt->batch] * stride;
    float *own = (float *)c->places.data + c->places_columns[f];

    copy[f] = (TrsRowsCopy){.n = ids_of(kjt, f),
                            .row_bytes = c->width * (int64_t)sizeof(float),
                            .from = to_caller ? own : theirs,
                            .from_stride = (to_caller ? own_stride : stride) * (int64_t)sizeof(float),
                            .to = to_caller ? theirs : own,
                            .to_stride = (to_caller ? stride : own_stride) * (int64_t)sizeof(float)};
  }
  PetscCall(c->machine.compute->copy_rows(c->stream, c->workspace, c->n_features, copy));
  PetscCall(PetscFree(copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsApiGradient(TrshardCollection c, int slot, const float *gradient, int64_t stride,
                              TrsPooledMatrix *matrix)
{
  /* this matrix of the caller is only read */
  float *theirs = (float *)TrsFloats(gradient, stride).data;

  PetscFunctionBegin;
  *matrix = (TrsPooledMatrix){.rows = TrsFloats(gradient, stride), .columns = c->columns};
  if (!c->by_id && !c->changes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsApiPlaces(c, slot, matrix));
  if (c->by_id) {
    PetscCall(TrsApiRowsCopy(c, slot, theirs, stride, PETSC_FALSE));
  } else {
    const TrsRowsCopy copy = {.n = c->slot[slot].batch.kjt.batch,
                              .row_bytes = c->width * (int64_t)sizeof(float),
                              .from = gradient,
                              .from_stride = stride * (int64_t)sizeof(float),
                              .to = matrix->rows.data,
                              .to_stride = matrix->rows.stride * (int64_t)sizeof(float)};

    PetscCall(c->machine.compute->copy_rows(c->stream, c->workspace, 1, &copy));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
