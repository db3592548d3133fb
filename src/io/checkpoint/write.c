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

/* A rank flushes its data to disk after this many bytes, and at the end. Few flushes cost less. */
static const int64_t flush_bytes = (int64_t)512 << 20;

static PetscErrorCode add_part(TrsCheckpointWriter w, TrsCheckpointPart p, const TrsStatePart *from)
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
  if (from && w->tensor[p.tensor].tensor->expect) {
    const TrsStateTensor *tensor = w->tensor[p.tensor].tensor;

    PetscCall(
        tensor->expect(tensor->give_context, (int)(from - tensor->part), p.row - from->row_offset, p.rows));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Cut a rectangle by rows into parts. If all ranks hold the same rectangle (`shared`), the ranks
  take turns: each part is written by one rank.
*/
static PetscErrorCode add_rectangle(TrsCheckpointWriter w, int t, const TrsStatePart *from, PetscBool shared)
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

PetscErrorCode TrsCheckpointListParts(TrsCheckpointWriter w)
{
  const TrsState *state = w->state;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(2 * (size_t)state->n + 1, &w->tensor));
  for (int i = 0; i < state->n; i++) {
    const TrsStateTensor *from = &state->tensor[i];
    const int t = w->n_tensors;

    if (from->count && from->rows == 0) continue;
    w->n_tensors++;
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

    if (!from->mean_path || (from->count && from->rows == 0)) continue;
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

PetscErrorCode TrsCheckpointGatherParts(TrsCheckpointWriter w)
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
static PetscErrorCode check_finite(const struct TrsCheckpointWriterImpl *w, const TrsCheckpointPart *p,
                                   int64_t first, int64_t n, const char *data, int64_t stride)
{
  const TrsCheckpointFileTensor *tensor = &w->tensor[p->tensor];
  const TrsDType dtype = tensor->mean ? TRS_FP32 : tensor->tensor->dtype;

  PetscFunctionBegin;
  for (int64_t r = 0; r < n; r++)
    PetscCheck(row_is_finite(dtype, p->cols, data + r * stride), PETSC_COMM_SELF, TRS_ERR_NOT_FINITE,
               "%s is not written: row %" PRId64
               " of /%s is not finite; earlier checkpoints are left as they are",
               w->path, p->row + first + r, tensor->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode release_stage(TrsCheckpointWriter w)
{
  const TrsStateMemory *memory = &w->state->memory;

  PetscFunctionBegin;
  if (w->stage) PetscCall(memory->copy ? memory->release(memory->context, &w->stage) : TrsFree(&w->stage));
  w->stage_bytes = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode reserve_stage(TrsCheckpointWriter w, int64_t bytes)
{
  const TrsStateMemory *memory = &w->state->memory;

  PetscFunctionBegin;
  if (bytes <= w->stage_bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(release_stage(w));
  PetscCall(memory->copy ? memory->alloc(memory->context, bytes, &w->stage) : TrsAlloc(bytes, 1, &w->stage));
  w->stage_bytes = bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute rows of the mean over columns, weighted by width. The function reads the columns from the
  file, where they are already written. It computes in double and stores float.
*/
static PetscErrorCode compute_means(TrsCheckpointWriter w, const TrsCheckpointPart *p, int64_t first,
                                    int64_t n, const char **data)
{
  const TrsCheckpointFileTensor *mean = &w->tensor[p->tensor];
  const TrsStateTensor *from = mean->tensor;
  const TrsCheckpointFileTensor *columns = mean;
  float *values, *means;
  int error;

  PetscFunctionBegin;
  for (int t = 0; t < w->n_tensors; t++)
    if (w->tensor[t].tensor == from && !w->tensor[t].mean) columns = &w->tensor[t];
  PetscCall(reserve_stage(w, n * (from->n_columns + 1) * (int64_t)sizeof(*means)));
  means = (float *)w->stage;
  values = means + n;
  error = TrsExtentRead(w->fd, &columns->extent, p->row + first, n, 0, from->n_columns, values);
  PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: /%s cannot be read back: %s", w->path, from->path,
             strerror(error));
  for (int64_t r = 0; r < n; r++) {
    double sum = 0;

    for (int c = 0; c < from->n_columns; c++)
      sum += from->mean_weights[c] * (double)values[r * from->n_columns + c];
    means[r] = (float)sum;
  }
  *data = (const char *)means;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find rows of part i in memory that the host can read: in the state's memory, or in a copy in the
  stage. *stride is the number of bytes from one row to the next.
*/
static PetscErrorCode find_rows(TrsCheckpointWriter w, int64_t i, int64_t first, int64_t n, const char **data,
                                int64_t *stride)
{
  const TrsStateMemory *memory = &w->state->memory;
  const TrsCheckpointPart *p = &w->parts[i];
  const TrsCheckpointFileTensor *tensor = &w->tensor[p->tensor];
  const TrsStatePart *from = w->from[i];
  const int64_t row_bytes = p->cols * tensor->element_bytes;
  int64_t at;

  PetscFunctionBegin;
  *stride = row_bytes;
  if (tensor->mean) {
    PetscCall(compute_means(w, p, first, n, data));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  at = p->row - from->row_offset + first;
  if (tensor->tensor->give) {
    PetscCall(reserve_stage(w, n * row_bytes));
    PetscCall(tensor->tensor->give(tensor->tensor->give_context, (int)(from - tensor->tensor->part), at, n,
                                   w->stage));
    *data = (const char *)w->stage;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCheck(from->data || n * row_bytes == 0, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
             "%s has no memory to write from", tensor->path);
  *stride = from->stride * tensor->element_bytes;
  *data = (const char *)from->data + at * *stride;
  if (memory->copy) {
    /* the number of bytes includes the gaps between rows */
    const int64_t bytes = n > 0 ? (n - 1) * *stride + row_bytes : 0;

    PetscCall(reserve_stage(w, bytes));
    PetscCall(memory->copy(memory->context, w->stage, *data, bytes));
    *data = (const char *)w->stage;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write part i in pieces, each checked, and compute its hash. */
static PetscErrorCode write_pieces(TrsCheckpointWriter w, int64_t i, XXH3_state_t *hash)
{
  const TrsCheckpointPart *p = &w->parts[i];
  const TrsCheckpointFileTensor *tensor = &w->tensor[p->tensor];
  const int64_t row_bytes = p->cols * tensor->element_bytes;
  /* The memory of a writer beside other work, and of means, must be small. */
  const int64_t piece_bytes = tensor->mean || tensor->tensor->expect ? trs_strip_bytes : trs_part_bytes;
  const int64_t at_once = PetscMax(piece_bytes / PetscMax(row_bytes, 1), 1);

  PetscFunctionBegin;
  for (int64_t first = 0; first < p->rows; first += at_once) {
    const int64_t n = PetscMin(at_once, p->rows - first);
    const char *data = NULL;
    int64_t stride;
    int error;

    PetscCheck(!__atomic_load_n(&w->stop, __ATOMIC_RELAXED), PETSC_COMM_SELF, TRS_ERR_STOPPED,
               "%s is not written: the run ends", w->path);
    PetscCall(find_rows(w, i, first, n, &data, &stride));
    PetscCall(check_finite(w, p, first, n, data, stride));
    error = TrsExtentWrite(w->fd, &tensor->extent, p->row + first, n, p->col, p->cols, data, stride);
    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: /%s cannot be written: %s", w->path, tensor->path,
               strerror(error));
    if (row_bytes == stride)
      (void)XXH3_64bits_update(hash, data, (size_t)(n * row_bytes));
    else
      for (int64_t r = 0; r < n; r++) (void)XXH3_64bits_update(hash, data + r * stride, (size_t)row_bytes);
    w->unflushed += n * row_bytes;
    __atomic_store_n(&w->written_bytes, w->written_bytes + n * row_bytes, __ATOMIC_RELAXED);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_part(TrsCheckpointWriter w, int64_t i)
{
  XXH3_state_t *hash = XXH3_createState();
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCheck(hash && XXH3_64bits_reset(hash) == XXH_OK, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "out of memory: no hash");
  ierr = write_pieces(w, i, hash);
  w->parts[i].hash = (int64_t)XXH3_64bits_digest(hash);
  (void)XXH3_freeState(hash);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Return the end of the round that begins with part i. A round has one large part or many small
  parts, and takes seconds.
*/
static int64_t end_of_round(const struct TrsCheckpointWriterImpl *w, int64_t i, PetscBool means)
{
  int64_t bytes = 0;

  for (; i < w->n_parts && bytes < trs_part_bytes / 2; i++)
    if (w->tensor[w->parts[i].tensor].mean == means)
      bytes += w->parts[i].rows * w->parts[i].cols * w->tensor[w->parts[i].tensor].element_bytes;
  return i;
}

/* Flush what this rank has written to disk, if it is at least this number of bytes. */
static PetscErrorCode flush(TrsCheckpointWriter w, int64_t at_least)
{
  PetscFunctionBegin;
  if (w->unflushed < at_least) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(fsync(w->fd) == 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be flushed to disk: %s", w->path,
             strerror(errno));
  w->unflushed = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write parts [begin, end) of the tensors, or of the means, and flush them to disk. */
static PetscErrorCode write_round(TrsCheckpointWriter w, PetscBool means, int64_t begin, int64_t end)
{
  PetscFunctionBegin;
  if (w->fd < 0) w->fd = TrsAtomicJoin(w->temporary);
  PetscCheck(w->fd >= 0, PETSC_COMM_SELF, TRS_ERR_IO,
             "%s: rank %d cannot open the temporary file that rank 0 has made: %s", w->temporary, w->rank,
             strerror(errno));
  for (int64_t i = begin; i < end; i++) {
    if (w->tensor[w->parts[i].tensor].mean != means) continue;
    PetscCall(write_part(w, i));
    PetscCall(flush(w, flush_bytes));
  }
  if (end == w->n_parts) PetscCall(flush(w, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write in rounds that all ranks end together. So each rank soon notices that other ranks make
  progress (-watchdog_seconds) or have failed.
*/
static PetscErrorCode write_parts(TrsCheckpointWriter w, PetscBool means)
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
static PetscErrorCode write_checksums(TrsCheckpointWriter w)
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

/* On rank 0, compute the file's id from the checksums. */
static void compute_id(const struct TrsCheckpointWriterImpl *w, char *id)
{
  uint64_t sum = 0;

  for (int64_t i = 0; i < w->n_all; i++) {
    const TrsCheckpointPart *p = &w->all[i];
    const int64_t row[TRS_CHECKSUM_COLUMNS] = {p->row, p->col, p->rows, p->cols, p->hash};

    sum += TrsCheckpointPartId(w->tensor[p->tensor].path, row);
  }
  TrsCheckpointIdText(sum, id);
}

static PetscErrorCode publish(TrsCheckpointWriter w)
{
  PetscFunctionBegin;
  PetscCall(write_checksums(w));
  PetscCall(TrsOutputPublish(w->output, &w->file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the stages of a file --- */

static PetscErrorCode begin_agreed(TrsCheckpointWriter w)
{
  PetscFunctionBegin;
  PetscCall(TrsAgree(w->comm, TrsCheckpointListParts(w)));
  PetscCall(TrsCheckpointGatherParts(w));
  PetscCall(TrsAgree(w->comm, w->rank == 0 ? TrsCheckpointCreateFile(w) : PETSC_SUCCESS));
  PetscCall(TrsCheckpointBroadcastLayout(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointBegin(MPI_Comm comm, const char *path, const TrsState *state,
                                  const TrsCheckpointInfo *info, TrsCheckpointWriter *writer)
{
  TrsCheckpointWriter w;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscNew(&w));
  *writer = w;
  w->comm = comm;
  w->state = state;
  w->info = info;
  w->output = info->output;
  w->id = info->id;
  w->fd = w->file.fd = -1;
  PetscCall(PetscStrallocpy(path, &w->path));
  PetscCallMPI(MPI_Comm_rank(comm, &w->rank));
  PetscCallMPI(MPI_Comm_size(comm, &w->size));
  ierr = begin_agreed(w);
  w->info = NULL; /* it is only borrowed for this call */
  if (ierr) PetscCall(TrsCheckpointEnd(writer));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointDoStage(TrsCheckpointWriter w)
{
  PetscFunctionBegin;
  switch (w->stage_of_file) {
  case TRS_CHECKPOINT_TENSORS: PetscCall(write_round(w, PETSC_FALSE, 0, w->n_parts)); break;
  case TRS_CHECKPOINT_MEANS: PetscCall(write_round(w, PETSC_TRUE, 0, w->n_parts)); break;
  case TRS_CHECKPOINT_PUBLISH:
    if (w->rank == 0) PetscCall(publish(w));
    break;
  case TRS_CHECKPOINT_WRITTEN: break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointNextStage(TrsCheckpointWriter w, TrsCheckpointStage *stage)
{
  PetscFunctionBegin;
  w->stage_of_file++;
  if (w->stage_of_file == TRS_CHECKPOINT_MEANS && !w->has_means) w->stage_of_file++;
  if (w->stage_of_file == TRS_CHECKPOINT_PUBLISH) PetscCall(TrsCheckpointGatherParts(w));
  if (w->stage_of_file == TRS_CHECKPOINT_WRITTEN && w->id) {
    if (w->rank == 0) compute_id(w, w->id);
    PetscCallMPI(MPI_Bcast(w->id, TRS_FILE_ID_SIZE, MPI_CHAR, 0, w->comm));
  }
  *stage = w->stage_of_file;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int64_t TrsCheckpointWrittenBytes(const struct TrsCheckpointWriterImpl *w)
{
  return __atomic_load_n(&w->written_bytes, __ATOMIC_RELAXED);
}

void TrsCheckpointStop(TrsCheckpointWriter w)
{
  __atomic_store_n(&w->stop, 1, __ATOMIC_RELAXED);
}

PetscErrorCode TrsCheckpointEnd(TrsCheckpointWriter *writer)
{
  TrsCheckpointWriter w = *writer;

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
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
  PetscCall(PetscFree(w->path));
  PetscCall(PetscFree(*writer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Do all stages, with the tensors and the means in rounds. */
static PetscErrorCode write_agreed(TrsCheckpointWriter w)
{
  TrsCheckpointStage stage = TRS_CHECKPOINT_TENSORS;

  PetscFunctionBegin;
  while (stage != TRS_CHECKPOINT_WRITTEN) {
    if (stage == TRS_CHECKPOINT_PUBLISH)
      PetscCall(TrsAgree(w->comm, TrsCheckpointDoStage(w)));
    else
      PetscCall(write_parts(w, (PetscBool)(stage == TRS_CHECKPOINT_MEANS)));
    PetscCall(TrsCheckpointNextStage(w, &stage));
  }
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

PetscErrorCode TrsCheckpointPlace(MPI_Comm comm, const TrsState *state)
{
  PetscFunctionBegin;
  /* On some ranks settle() may do nothing, so all ranks agree here that it succeeded. */
  PetscCall(TrsAgree(comm, state->settle ? state->settle(state->settle_context) : PETSC_SUCCESS));
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
  TrsCheckpointWriter w;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointPlace(comm, state));
  PetscCall(TrsCheckpointBegin(comm, path, state, info, &w));
  ierr = write_agreed(w);
  PetscCall(TrsCheckpointEnd(&w));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
