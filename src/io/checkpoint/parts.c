/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/checkpoint/write_impl.h"

#include <inttypes.h>
#include <limits.h>

enum { TRS_PART_INTS = 6 };

static PetscErrorCode add_part(TrsCheckpointWriter *w, TrsCheckpointPart p, const char *data, int64_t stride)
{
  PetscFunctionBegin;
  if (w->n_parts == w->capacity) {
    w->capacity = w->capacity ? 2 * w->capacity : 64;
    PetscCall(PetscRealloc((size_t)w->capacity * sizeof(*w->parts), &w->parts));
    PetscCall(PetscRealloc((size_t)w->capacity * sizeof(*w->data), &w->data));
    PetscCall(PetscRealloc((size_t)w->capacity * sizeof(*w->stride), &w->stride));
  }
  w->parts[w->n_parts] = p;
  w->data[w->n_parts] = data;
  w->stride[w->n_parts] = stride;
  w->n_parts++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Cut a rectangle by rows into parts. If all ranks hold the rectangle (`shared`), they take its
  parts in turn.
*/
static PetscErrorCode add_rectangle(TrsCheckpointWriter *w, int t, const TrsStatePart *from, PetscBool shared)
{
  int64_t element_bytes = w->tensor[t].element_bytes, stride = from->stride * element_bytes;
  int64_t at_once = trs_part_bytes / (from->cols * element_bytes + 1), n = 0;

  PetscFunctionBegin;
  if (at_once < 1) at_once = 1;
  for (int64_t r = 0; r < from->rows; r += at_once, n++) {
    TrsCheckpointPart p = {.tensor = t,
                           .row = from->row_offset + r,
                           .col = from->col_offset,
                           .rows = from->rows - r,
                           .cols = from->cols};

    if (p.rows > at_once) p.rows = at_once;
    if (from->cols == 0 || (shared && n % w->size != w->rank)) continue;
    PetscCall(add_part(w, p, from->data ? (const char *)from->data + r * stride : NULL, stride));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointListParts(TrsCheckpointWriter *w)
{
  const TrsState *state = w->state;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(2 * (size_t)state->n + 1, &w->tensor));
  for (int i = 0; i < state->n; i++) {
    const TrsStateTensor *from = &state->tensor[i];
    int t = w->n_tensors++;

    w->tensor[t] = (TrsCheckpointFileTensor){.tensor = from,
                                             .path = from->path,
                                             .ndim = from->ndim,
                                             .rows = from->rows,
                                             .cols = from->cols,
                                             .element_bytes = TrsDTypeBytes(from->dtype)};
    for (int k = 0; k < from->n_parts; k++)
      if (!from->part[k].copy) PetscCall(add_rectangle(w, t, &from->part[k], from->replicated));
  }
  for (int i = 0; i < state->n; i++) {
    const TrsStateTensor *from = &state->tensor[i];
    const TrsStatePart whole = {.rows = from->rows, .cols = 1, .stride = 1};
    int t = w->n_tensors;

    if (!from->mean_path) continue;
    w->has_means = PETSC_TRUE;
    w->tensor[w->n_tensors++] = (TrsCheckpointFileTensor){.tensor = from,
                                                          .mean = PETSC_TRUE,
                                                          .path = from->mean_path,
                                                          .ndim = 1,
                                                          .rows = from->rows,
                                                          .cols = 1,
                                                          .element_bytes = TrsDTypeBytes(TRS_FP32)};
    PetscCall(add_rectangle(w, t, &whole, PETSC_TRUE));
  }
  PetscCheck(w->n_parts <= INT_MAX / TRS_PART_INTS, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "too many parts: %" PRId64, w->n_parts);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointGatherParts(TrsCheckpointWriter *w)
{
  int mine = (int)(w->n_parts * TRS_PART_INTS);
  int64_t total = 0;

  PetscFunctionBegin;
  if (w->rank == 0 && !w->all) {
    PetscCall(PetscMalloc1(w->size, &w->counts));
    PetscCall(PetscMalloc1(w->size, &w->places));
  }
  PetscCallMPI(MPI_Gather(&mine, 1, MPI_INT, w->counts, 1, MPI_INT, 0, w->comm));
  for (int r = 0; w->rank == 0 && r < w->size; r++) {
    w->places[r] = (int)total;
    total += w->counts[r];
    PetscCheck(total <= INT_MAX, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "too many parts: %" PRId64,
               total / TRS_PART_INTS);
  }
  if (w->rank == 0 && !w->all) PetscCall(PetscMalloc1((size_t)(total / TRS_PART_INTS + 1), &w->all));
  w->n_all = total / TRS_PART_INTS;
  PetscCallMPI(
      MPI_Gatherv(w->parts, mine, MPI_INT64_T, w->all, w->counts, w->places, MPI_INT64_T, 0, w->comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}
