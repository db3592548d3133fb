/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/buffer.h"
#include "core/events.h"
#include "io/checkpoint/impl.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { TRS_PART_INTS = 6 };

static PetscErrorCode add_part(TrsCheckpointWriter *w, TrsCheckpointPart p, const TrsStatePart *from)
{
  PetscFunctionBegin;
  if (w->n_parts == w->capacity) {
    w->capacity = w->capacity ? 2 * w->capacity : 64;
    PetscCall(PetscRealloc((size_t)w->capacity * sizeof(*w->parts), &w->parts));
    PetscCall(PetscRealloc((size_t)w->capacity * sizeof(*w->from), &w->from));
  }
  w->parts[w->n_parts] = p;
  w->from[w->n_parts] = from;
  w->n_parts++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Cut a rectangle by rows into parts. If all ranks hold the same rectangle (`shared`), the ranks
  take turns: each part is written by one rank.
*/
static PetscErrorCode add_rectangle(TrsCheckpointWriter *w, int t, const TrsStatePart *from, PetscBool shared)
{
  int64_t at_once = trs_part_bytes / (from->cols * w->tensor[t].element_bytes + 1), n = 0;

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
    PetscCall(add_part(w, p, w->tensor[t].mean ? NULL : from));
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

static PetscErrorCode hash_rows(const char *data, int64_t rows, int64_t row_bytes, int64_t stride,
                                int64_t *hash)
{
  XXH3_state_t *state;

  PetscFunctionBegin;
  if (row_bytes == stride) {
    *hash = (int64_t)XXH3_64bits(data, (size_t)(rows * row_bytes));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  state = XXH3_createState();
  PetscCheck(state && XXH3_64bits_reset(state) == XXH_OK, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "out of memory: no hash");
  for (int64_t r = 0; r < rows; r++) (void)XXH3_64bits_update(state, data + r * stride, (size_t)row_bytes);
  *hash = (int64_t)XXH3_64bits_digest(state);
  (void)XXH3_freeState(state);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if every number of a row is finite. An infinity or a NaN has an exponent with all bits set.
*/
static PetscBool row_is_finite(TrsDType dtype, int64_t cols, const char *row)
{
  const uint16_t ones = dtype == TRS_FP16 ? 0x7c00 : 0x7f80;
  int bad = 0;

  if (dtype == TRS_FP32) {
    const uint32_t *bits = (const uint32_t *)(const void *)row;
    for (int64_t c = 0; c < cols; c++) bad |= (bits[c] & 0x7f800000u) == 0x7f800000u;
  } else if (dtype == TRS_FP16 || dtype == TRS_BF16) {
    const uint16_t *bits = (const uint16_t *)(const void *)row;
    for (int64_t c = 0; c < cols; c++) bad |= (bits[c] & ones) == ones;
  }
  return (PetscBool)!bad;
}

/* Refuse numbers that are not finite, because they must not replace a good checkpoint. */
static PetscErrorCode check_finite(const TrsCheckpointWriter *w, const TrsCheckpointPart *p, const char *data,
                                   int64_t stride)
{
  const TrsCheckpointFileTensor *tensor = &w->tensor[p->tensor];
  const TrsDType dtype = tensor->mean ? TRS_FP32 : tensor->tensor->dtype;

  PetscFunctionBegin;
  for (int64_t r = 0; r < p->rows; r++)
    PetscCheck(row_is_finite(dtype, p->cols, data + r * stride), PETSC_COMM_SELF, TRS_ERR_NOT_FINITE,
               "%s is not written: row %" PRId64
               " of /%s is not finite; earlier checkpoints are left as they are",
               w->path, p->row + r, tensor->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_rectangle(const TrsCheckpointWriter *w, TrsCheckpointPart *p, const char *data,
                                      int64_t stride)
{
  const TrsCheckpointFileTensor *tensor = &w->tensor[p->tensor];
  int error;

  PetscFunctionBegin;
  PetscCall(check_finite(w, p, data, stride));
  error = TrsExtentWrite(w->fd, &tensor->extent, p->row, p->rows, p->col, p->cols, data, stride);
  PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: /%s cannot be written: %s", w->path, tensor->path,
             strerror(error));
  PetscCall(hash_rows(data, p->rows, p->cols * tensor->element_bytes, stride, &p->hash));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_stage(TrsCheckpointWriter *w)
{
  const TrsStateMemory *memory = &w->state->memory;

  PetscFunctionBegin;
  if (w->stage) PetscCall(memory->copy ? memory->release(memory->context, &w->stage) : TrsFree(&w->stage));
  w->stage_bytes = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reserve_stage(TrsCheckpointWriter *w, int64_t bytes)
{
  const TrsStateMemory *memory = &w->state->memory;

  PetscFunctionBegin;
  if (bytes <= w->stage_bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(release_stage(w));
  PetscCall(memory->copy ? memory->alloc(memory->context, bytes, &w->stage) : TrsAlloc(bytes, 1, &w->stage));
  w->stage_bytes = bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write a part whose data the tensor's owner supplies by a function. */
static PetscErrorCode write_given(TrsCheckpointWriter *w, TrsCheckpointPart *p, const TrsStatePart *from)
{
  const TrsStateTensor *tensor = w->tensor[p->tensor].tensor;
  const int64_t row_bytes = p->cols * w->tensor[p->tensor].element_bytes;

  PetscFunctionBegin;
  PetscCall(reserve_stage(w, p->rows * row_bytes));
  PetscCall(tensor->give(tensor->give_context, (int)(from - tensor->part), p->row - from->row_offset, p->rows,
                         w->stage));
  PetscCall(write_rectangle(w, p, (const char *)w->stage, row_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write a part of the state from its memory, or from a copy that the host can read. */
static PetscErrorCode write_part(TrsCheckpointWriter *w, int64_t i)
{
  const TrsStateMemory *memory = &w->state->memory;
  TrsCheckpointPart *p = &w->parts[i];
  const TrsStatePart *from = w->from[i];
  const int64_t element_bytes = w->tensor[p->tensor].element_bytes, stride = from->stride * element_bytes;
  /* the number of bytes includes the gaps between rows */
  const int64_t bytes = p->rows > 0 ? (p->rows - 1) * stride + p->cols * element_bytes : 0;
  const char *data;

  PetscFunctionBegin;
  if (w->tensor[p->tensor].tensor->give) {
    PetscCall(write_given(w, p, from));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCheck(from->data || bytes == 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL, "%s has no memory to write from",
             w->tensor[p->tensor].path);
  data = (const char *)from->data + (p->row - from->row_offset) * stride;
  if (memory->copy) {
    PetscCall(reserve_stage(w, bytes));
    PetscCall(memory->copy(memory->context, w->stage, data, bytes));
    data = (const char *)w->stage;
  }
  PetscCall(write_rectangle(w, p, data, stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write a part of the mean over columns, weighted by width. The function reads the columns from the
  file, where they are already written. It computes in double and stores float.
*/
static PetscErrorCode write_mean(TrsCheckpointWriter *w, TrsCheckpointPart *p)
{
  const TrsCheckpointFileTensor *mean = &w->tensor[p->tensor];
  const TrsStateTensor *from = mean->tensor;
  const TrsCheckpointFileTensor *columns = mean;
  float *values, *means;
  int error;

  PetscFunctionBegin;
  for (int t = 0; t < w->n_tensors; t++)
    if (w->tensor[t].tensor == from && !w->tensor[t].mean) columns = &w->tensor[t];
  PetscCall(TrsAlloc(p->rows * from->n_columns, sizeof(*values), &values));
  PetscCall(TrsAlloc(p->rows, sizeof(*means), &means));
  error = TrsExtentRead(w->fd, &columns->extent, p->row, p->rows, 0, from->n_columns, values);
  PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: /%s cannot be read back: %s", w->path, from->path,
             strerror(error));
  for (int64_t r = 0; r < p->rows; r++) {
    double sum = 0;

    for (int c = 0; c < from->n_columns; c++)
      sum += from->mean_weights[c] * (double)values[r * from->n_columns + c];
    means[r] = (float)sum;
  }
  PetscCall(write_rectangle(w, p, (const char *)means, (int64_t)sizeof(*means)));
  PetscCall(TrsFree(&values));
  PetscCall(TrsFree(&means));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Return the end of the round that begins with part i. A round has one large part or many small
  parts, and takes seconds.
*/
static int64_t end_of_round(const TrsCheckpointWriter *w, int64_t i, PetscBool means)
{
  int64_t bytes = 0;

  for (; i < w->n_parts && bytes < trs_part_bytes / 2; i++)
    if (w->tensor[w->parts[i].tensor].mean == means)
      bytes += w->parts[i].rows * w->parts[i].cols * w->tensor[w->parts[i].tensor].element_bytes;
  return i;
}

/*
  Write this rank's parts and flush them to disk. The tensors are written first. Then the means are
  computed from the file.
*/
static PetscErrorCode write_round(TrsCheckpointWriter *w, PetscBool means, int64_t begin, int64_t end)
{
  int64_t n_written = 0;

  PetscFunctionBegin;
  if (w->fd < 0) w->fd = TrsAtomicJoin(w->temporary);
  PetscCheck(w->fd >= 0, PETSC_COMM_SELF, TRS_ERR_IO,
             "%s: rank %d cannot open the temporary file that rank 0 has made: %s", w->temporary, w->rank,
             strerror(errno));
  for (int64_t i = begin; i < end; i++) {
    if (w->tensor[w->parts[i].tensor].mean != means) continue;
    if (means) {
      PetscCall(write_mean(w, &w->parts[i]));
    } else {
      PetscCall(write_part(w, i));
    }
    n_written++;
  }
  PetscCheck(n_written == 0 || fsync(w->fd) == 0, PETSC_COMM_SELF, TRS_ERR_IO,
             "%s cannot be flushed to disk: %s", w->path, strerror(errno));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write in rounds that all ranks end together. So each rank soon notices that other ranks make
  progress (-watchdog_seconds) or have failed.
*/
static PetscErrorCode write_parts(TrsCheckpointWriter *w, PetscBool means)
{
  int64_t rounds = 0, begin = 0;

  PetscFunctionBegin;
  for (int64_t i = 0; i < w->n_parts; rounds++) i = end_of_round(w, i, means);
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &rounds, 1, MPI_INT64_T, MPI_MAX, w->comm));
  for (int64_t r = 0; r < rounds; r++) {
    const int64_t end = end_of_round(w, begin, means);

    PetscCall(TrsAgree(w->comm, write_round(w, means, begin, end)));
    TrsStageProgress();
    begin = end;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On rank 0, write the tables of checksums directly to their file offsets. */
static PetscErrorCode write_checksums(TrsCheckpointWriter *w)
{
  int64_t *next;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(w->n_tensors + 1, &next));
  for (int64_t i = 0; i < w->n_all; i++) {
    const TrsCheckpointPart *p = &w->all[i];
    const int64_t row[TRS_CHECKSUM_COLUMNS] = {p->row, p->col, p->rows, p->cols, p->hash};
    int error = TrsWriteFully(w->fd, row, (int64_t)sizeof(row),
                              w->tensor[p->tensor].sums_offset + next[p->tensor]++ * (int64_t)sizeof(row));

    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: checksums cannot be written: %s", w->path,
               strerror(error));
  }
  PetscCall(PetscFree(next));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode publish(TrsCheckpointWriter *w)
{
  PetscFunctionBegin;
  PetscCall(write_checksums(w));
  PetscCall(TrsOutputPublish(w->info->output, &w->file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_agreed(TrsCheckpointWriter *w)
{
  PetscFunctionBegin;
  PetscCall(TrsAgree(w->comm, TrsCheckpointListParts(w)));
  PetscCall(TrsCheckpointGatherParts(w));
  PetscCall(TrsAgree(w->comm, w->rank == 0 ? TrsCheckpointCreateFile(w) : PETSC_SUCCESS));
  PetscCall(TrsCheckpointBroadcastLayout(w));
  PetscCall(write_parts(w, PETSC_FALSE));
  if (w->has_means) PetscCall(write_parts(w, PETSC_TRUE));
  PetscCall(TrsCheckpointGatherParts(w));
  PetscCall(TrsAgree(w->comm, w->rank == 0 ? publish(w) : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_writer(TrsCheckpointWriter *w)
{
  PetscFunctionBegin;
  for (int t = 0; t < w->n_tensors; t++) PetscCall(TrsExtentFree(&w->tensor[t].extent));
  if (w->fd >= 0) (void)close(w->fd);
  PetscCall(TrsAtomicDiscard(&w->file));
  PetscCall(PetscFree(w->tensor));
  PetscCall(PetscFree(w->parts));
  PetscCall(release_stage(w));
  PetscCall(PetscFree(w->from));
  PetscCall(PetscFree(w->all));
  PetscCall(PetscFree(w->counts));
  PetscCall(PetscFree(w->places));
  PetscCall(PetscFree(w->temporary));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute the rows that each unit of a list has in the file: the units follow one another. mine and
  all [n_units] are scratch memory.
*/
static PetscErrorCode place_list(MPI_Comm comm, TrsStateTensor *list, int64_t *mine, int64_t *all)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscArrayzero(mine, list->n_units));
  ierr = list->count(list->list_context, mine);
  PetscCall(TrsAgree(comm, ierr));
  PetscCallMPI(MPI_Allreduce(mine, all, (int)list->n_units, MPI_INT64_T, MPI_MAX, comm));
  list->rows = 0;
  for (int64_t u = 0; u < list->n_units; u++) {
    const int64_t rows = all[u];

    all[u] = list->rows; /* from now on the index of the unit's first row */
    list->rows += rows;
  }
  for (int k = 0; k < list->n_parts; k++) {
    list->part[k].row_offset = all[list->part[k].unit];
    list->part[k].rows = mine[list->part[k].unit];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode place_lists(MPI_Comm comm, const TrsState *state)
{
  PetscFunctionBegin;
  for (int i = 0; i < state->n; i++) {
    TrsStateTensor *list = &state->tensor[i];
    int64_t *mine, *all;

    if (!list->count) continue;
    PetscCall(PetscMalloc2((size_t)list->n_units, &mine, (size_t)list->n_units, &all));
    PetscCall(place_list(comm, list, mine, all));
    PetscCall(PetscFree2(mine, all));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointWrite(MPI_Comm comm, const char *path, const TrsState *state,
                                  const TrsCheckpointInfo *info)
{
  TrsCheckpointWriter w = {.comm = comm, .path = path, .state = state, .info = info, .fd = -1};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &w.rank));
  PetscCallMPI(MPI_Comm_size(comm, &w.size));
  /* On some ranks settle() may do nothing, so all ranks agree here that it succeeded. */
  PetscCall(TrsAgree(comm, state->settle ? state->settle(state->settle_context) : PETSC_SUCCESS));
  PetscCall(place_lists(comm, state));
  ierr = write_agreed(&w);
  PetscCall(free_writer(&w));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
