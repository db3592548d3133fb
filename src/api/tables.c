/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of a collection's tables as arrays of the caller. */
#include "api/impl.h"
#include "io/state.h"

#include <inttypes.h>
#include <string.h>

enum { TRS_STRIP_BYTES = 1 << 20, TRS_MOST_PATH = 512 };

/* Rows first .. first + n - 1 of a table, and the caller's array [n, columns] for them. */
typedef struct {
  int64_t first, n;
  PetscBool write;   /* true: the table gets the array's numbers; false: the opposite */
  float *to;         /* the array, if not write */
  const float *from; /* the array, if write */
} TrsApiWindow;

/* Copy bytes between the host and the memory of a table. */
static PetscErrorCode copy(const TrsState *state, void *to, const void *from, int64_t bytes)
{
  PetscFunctionBegin;
  if (state->memory.copy)
    PetscCall(state->memory.copy(state->memory.context, to, from, bytes));
  else
    memcpy(to, from, (size_t)bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode convert(const TrsState *state, int64_t n, TrsDType from, const void *source,
                              TrsDType to, void *result)
{
  PetscFunctionBegin;
  if (from == to)
    memcpy(result, source, (size_t)(n * TrsDTypeBytes(from)));
  else
    PetscCall(state->convert(n, from, source, to, result));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copy the rows of a part in the window. `strip` has space for TRS_STRIP_BYTES or a row. */
static PetscErrorCode copy_part(const TrsState *state, const TrsStateTensor *tensor, const TrsStatePart *part,
                                const TrsApiWindow *window, char *strip)
{
  const int64_t bytes = TrsDTypeBytes(tensor->dtype), row_bytes = part->cols * bytes;
  const int64_t begin = PetscMax(window->first, part->row_offset);
  const int64_t end = PetscMin(window->first + window->n, part->row_offset + part->rows);
  const int64_t most = part->stride == part->cols ? PetscMax(1, TRS_STRIP_BYTES / row_bytes) : 1;

  PetscFunctionBegin;
  for (int64_t r = begin, n; r < end; r += n) {
    char *const there = (char *)part->data + (r - part->row_offset) * part->stride * bytes;

    n = PetscMin(most, end - r);
    if (!window->write) PetscCall(copy(state, strip, there, n * row_bytes));
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = (r + i - window->first) * tensor->cols + part->col_offset;

      if (window->write)
        PetscCall(
            convert(state, part->cols, TRS_FP32, window->from + at, tensor->dtype, strip + i * row_bytes));
      else
        PetscCall(
            convert(state, part->cols, tensor->dtype, strip + i * row_bytes, TRS_FP32, window->to + at));
    }
    if (window->write) PetscCall(copy(state, there, strip, n * row_bytes));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_parts(const TrsState *state, const TrsStateTensor *tensor,
                                 const TrsApiWindow *window)
{
  char *strip;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)(TRS_STRIP_BYTES + tensor->cols * (int64_t)sizeof(float)), &strip));
  for (int i = 0; i < tensor->n_parts; i++)
    PetscCall(copy_part(state, tensor, &tensor->part[i], window, strip));
  PetscCall(PetscFree(strip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Combine the ranks' parts of the rows. Each number is on one rank or the same on several ranks, and
  its bits are 0 on the others.
*/
static PetscErrorCode combine(MPI_Comm comm, float *rows, int64_t n)
{
  const int64_t most = 1 << 26;

  PetscFunctionBegin;
  for (int64_t i = 0; i < n; i += most)
    PetscCallMPI(
        MPI_Allreduce(MPI_IN_PLACE, rows + i, (int)PetscMin(most, n - i), MPI_UINT32_T, MPI_BOR, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the table's weights in the list of tensors, and check the window. Not collective. */
static PetscErrorCode find(TrshardCollection c, const TrsState *state, const char *function,
                           const char *table, const TrsApiWindow *window, const TrsStateTensor **tensor)
{
  char path[TRS_MOST_PATH];

  PetscFunctionBegin;
  PetscCall(TrsApiGiven(table, function, "table"));
  PetscCheck(c->n_started == 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "%s: %d batches are under way, expected their TrshardBackward first", function, c->n_started);
  PetscCall(PetscSNPrintf(path, sizeof(path), "embedding/%s/weight", table));
  *tensor = NULL;
  for (int i = 0; i < state->n; i++)
    if (strcmp(state->tensor[i].path, path) == 0) *tensor = &state->tensor[i];
  PetscCheck(*tensor && !(*tensor)->give && !(*tensor)->count, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s: table \"%s\", expected a table of the collection without id_map dynamic", function, table);
  PetscCheck(window->first >= 0 && window->n >= 0 && window->first <= (*tensor)->rows - window->n,
             PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s: %" PRId64 " rows from row %" PRId64 " on, expected rows of \"%s\", which has %" PRId64,
             function, window->n, window->first, table, (*tensor)->rows);
  if (window->n)
    PetscCall(TrsApiGiven(window->write ? (const void *)window->from : window->to, function, "rows"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode move_rows(TrshardCollection c, const TrsState *state, const char *function,
                                const char *table, const TrsApiWindow *window)
{
  const TrsStateTensor *tensor = NULL;

  PetscFunctionBegin;
  PetscCall(TrsAgree(c->comm, find(c, state, function, table, window, &tensor)));
  if (!tensor) PetscFunctionReturn(TRS_ERR_OPTION); /* TrsAgree() has returned; for the analyser */
  PetscCall(TrsShardedEbcSettle(c->ebc, c->stream, window->write));
  PetscCall(c->machine.device->stream_synchronize(c->stream));
  if (!window->write) memset(window->to, 0, (size_t)(window->n * tensor->cols) * sizeof(float));
  PetscCall(copy_parts(state, tensor, window));
  if (!window->write) PetscCall(combine(c->comm, window->to, window->n * tensor->cols));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* List the tables' tensors, move rows, and free the list even after an error. */
static PetscErrorCode with_tensors(TrshardCollection c, const char *function, const char *table,
                                   const TrsApiWindow *window)
{
  TrsState state = {.n = 0};
  PetscErrorCode ierr = TrsShardedEbcAddState(c->ebc, c->stream, NULL, &state);

  if (ierr == PETSC_SUCCESS) ierr = move_rows(c, &state, function, table, window);
  (void)TrsStateFree(&state);
  return ierr;
}

int TrshardTableRead(TrshardCollection c, const char *table, int64_t first, int64_t n, float *rows)
{
  TrsApiWindow window = {.first = first, .n = n};

  window.to = rows;
  return TRS_API_CALL_OF(c, with_tensors(c, "TrshardTableRead", table, &window));
}

int TrshardTableWrite(TrshardCollection c, const char *table, int64_t first, int64_t n, const float *rows)
{
  const TrsApiWindow window = {.first = first, .n = n, .write = PETSC_TRUE, .from = rows};

  return TRS_API_CALL_OF(c, with_tensors(c, "TrshardTableWrite", table, &window));
}
