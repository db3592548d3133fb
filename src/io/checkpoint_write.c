/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* fallocate. NOLINT(bugprone-reserved-identifier) */
#include "core/buffer.h"
#include "core/events.h"
#include "io/atomic_file.h"
#include "io/checkpoint_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

/* A tensor of the file: one of the state's, or the mean over one's columns. */
typedef struct {
  const TrsStateTensor *tensor;
  PetscBool mean;
  const char *path;
  int ndim;
  int64_t rows, cols;
  int64_t element_bytes;
  int64_t n_parts;     /* rank 0: over all ranks */
  int64_t sums_offset; /* of its checksum table in the file */
  TrsExtent extent;
} TrsFileTensor;

/* A rectangle that this rank writes: on the wire as 6 integers. */
typedef struct {
  int64_t tensor, row, col, rows, cols, hash;
} TrsPart;
enum { TRS_PART_INTS = 6, TRS_EXTENT_INTS = 8 };

typedef struct {
  MPI_Comm comm;
  int rank, size;
  const char *path;
  const TrsState *state;
  const TrsCheckpointInfo *info;
  int n_tensors;
  TrsFileTensor *tensor;
  PetscBool has_means;
  int64_t n_parts, capacity;
  TrsPart *parts;    /* [n_parts] this rank's */
  const char **data; /* [n_parts] first element in memory; NULL: a mean */
  int64_t *stride;   /* [n_parts] bytes */
  void *stage;       /* of parts that the host cannot read: at most trs_part_bytes, or one row */
  int64_t stage_bytes;
  int64_t n_all;        /* rank 0 */
  TrsPart *all;         /* [n_all] by rank */
  int *counts, *places; /* rank 0: [size] integers of each rank */
  TrsAtomicFile file;   /* rank 0 */
  char *temporary;
  int fd;
} TrsWriter;

PetscErrorCode TrsCheckpointType(TrsDType dtype, hid_t *type)
{
  PetscFunctionBegin;
  if (dtype == TRS_FP16) {
    PetscCall(TrsHDF5HalfType(type));
  } else {
    const hid_t plain = dtype == TRS_BF16    ? H5T_STD_U16LE
                        : dtype == TRS_UINT8 ? H5T_STD_U8LE
                                             : H5T_IEEE_F32LE;

    TrsCallHDF5(*type = H5Tcopy(plain));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- which parts there are --- */

static PetscErrorCode add_part(TrsWriter *w, TrsPart p, const char *data, int64_t stride)
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

/* Cut a rectangle by rows into parts; shared: all ranks hold it, and take its parts in turn. */
static PetscErrorCode add_rectangle(TrsWriter *w, int t, const TrsStatePart *from, PetscBool shared)
{
  int64_t element_bytes = w->tensor[t].element_bytes, stride = from->stride * element_bytes;
  int64_t at_once = trs_part_bytes / (from->cols * element_bytes + 1), n = 0;

  PetscFunctionBegin;
  if (at_once < 1) at_once = 1;
  for (int64_t r = 0; r < from->rows; r += at_once, n++) {
    TrsPart p = {.tensor = t,
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

static PetscErrorCode list_parts(TrsWriter *w)
{
  const TrsState *state = w->state;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(2 * (size_t)state->n + 1, &w->tensor));
  for (int i = 0; i < state->n; i++) {
    const TrsStateTensor *from = &state->tensor[i];
    int t = w->n_tensors++;

    w->tensor[t] = (TrsFileTensor){.tensor = from,
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
    w->tensor[w->n_tensors++] = (TrsFileTensor){.tensor = from,
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

/* All ranks' parts to rank 0; called again when the hashes are known. */
static PetscErrorCode gather_parts(TrsWriter *w)
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

/* --- the file's structure: rank 0, serial HDF5, under the lock --- */

/* Every element is somebody's: the parts' sizes add up. */
static PetscErrorCode count_parts(TrsWriter *w)
{
  int64_t *covered;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(w->n_tensors + 1, &covered));
  for (int64_t i = 0; i < w->n_all; i++) {
    const TrsPart *p = &w->all[i];

    covered[p->tensor] += p->rows * p->cols;
    w->tensor[p->tensor].n_parts++;
  }
  for (int t = 0; t < w->n_tensors; t++) {
    PetscCheck(covered[t] == w->tensor[t].rows * w->tensor[t].cols, PETSC_COMM_SELF, TRS_ERR_INTERNAL,
               "%s: the ranks' parts hold %" PRId64 " of %" PRId64 " elements", w->tensor[t].path, covered[t],
               w->tensor[t].rows * w->tensor[t].cols);
  }
  PetscCall(PetscFree(covered));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Chunks for a tensor that is cut into column parts of one width: then each part is contiguous in the file. Of about trs_part_bytes, so
  balanced that the padding of the last one is small. False: plain rows.
*/
static PetscBool choose_chunk(const TrsWriter *w, int t, int64_t chunk[2])
{
  const TrsFileTensor *tensor = &w->tensor[t];
  int64_t width = 0, n;

  for (int64_t i = 0; i < w->n_all; i++)
    if (w->all[i].tensor == t && w->all[i].cols > width) width = w->all[i].cols;
  if (tensor->ndim != 2 || width == 0 || width == tensor->cols) return PETSC_FALSE;
  for (int64_t i = 0; i < w->n_all; i++) {
    const TrsPart *p = &w->all[i];

    if (p->tensor == t && (p->col % width != 0 || (p->cols != width && p->col + p->cols != tensor->cols)))
      return PETSC_FALSE;
  }
  n = tensor->rows * width * tensor->element_bytes / trs_part_bytes + 1;
  chunk[0] = (tensor->rows + n - 1) / n;
  chunk[1] = width;
  return PETSC_TRUE;
}

static PetscErrorCode create_tensor(TrsWriter *w, int t, hid_t file)
{
  TrsFileTensor *tensor = &w->tensor[t];
  const TrsStateTensor *from = tensor->tensor;
  TrsDType dtype = tensor->mean ? TRS_FP32 : from->dtype;
  const int n_attributes = tensor->mean ? 0 : from->n_attributes;
  const int64_t dims[2] = {tensor->rows, tensor->cols};
  int64_t chunk[2];
  hid_t type, dataset;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointType(dtype, &type));
  PetscCall(TrsHDF5CreateDataset(file, tensor->path, type, tensor->ndim, dims,
                                 choose_chunk(w, t, chunk) ? chunk : NULL, PETSC_TRUE, &dataset));
  if (dtype == TRS_BF16) PetscCall(TrsHDF5WriteString(dataset, "dtype", "bf16", PETSC_TRUE));
  if (from->optimizer)
    PetscCall(TrsHDF5WriteString(dataset, TRS_OPTIMIZER_ATTRIBUTE, from->optimizer, PETSC_TRUE));
  if (!tensor->mean && from->n_columns)
    PetscCall(TrsHDF5WriteInts(dataset, "column_offsets", from->n_columns, from->column_offsets));
  for (int i = 0; i < n_attributes; i++) {
    const TrsStateAttribute *attribute = &from->attribute[i];

    if (attribute->text)
      PetscCall(TrsHDF5WriteString(dataset, attribute->name, attribute->text, PETSC_TRUE));
    else
      PetscCall(TrsHDF5WriteInts(dataset, attribute->name, 0, &attribute->number));
  }
  PetscCall(TrsExtentGet(dataset, type, &tensor->extent));
  TrsCallHDF5(H5Dclose(dataset));
  TrsCallHDF5(H5Tclose(type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_checksums(TrsWriter *w, int t, hid_t file)
{
  const int64_t dims[2] = {w->tensor[t].n_parts, TRS_CHECKSUM_COLUMNS};
  char name[1024];
  hid_t dataset;

  PetscFunctionBegin;
  if (dims[0] == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(snprintf(name, sizeof(name), TRS_CHECKSUMS "/%s", w->tensor[t].path) < (int)sizeof(name),
             PETSC_COMM_SELF, TRS_ERR_OPTION, "%s: the name is too long for a checkpoint", w->tensor[t].path);
  PetscCall(TrsHDF5CreateDataset(file, name, H5T_STD_I64LE, 2, dims, NULL, PETSC_TRUE, &dataset));
  w->tensor[t].sums_offset = (int64_t)H5Dget_offset(dataset);
  TrsCallHDF5(H5Dclose(dataset));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_objects(TrsWriter *w, hid_t file)
{
  const TrsCheckpointInfo *info = w->info;
  const int64_t version = TRS_CHECKPOINT_VERSION;

  PetscFunctionBegin;
  PetscCall(TrsHDF5WriteString(file, "format", TRS_CHECKPOINT_FORMAT, PETSC_TRUE));
  PetscCall(TrsHDF5WriteInts(file, "version", 0, &version));
  PetscCall(TrsHDF5WriteInts(file, "step", 0, &info->step));
  PetscCall(TrsHDF5WriteInts(file, "epoch", 0, &info->epoch));
  PetscCall(TrsHDF5WriteInts(file, "samples_seen", 0, &info->samples_seen));
  PetscCall(TrsHDF5WriteInts(file, "run_step", 0, &info->run_step));
  PetscCall(TrsHDF5WriteInts(file, "global_batch", 0, &info->global_batch));
  PetscCall(TrsHDF5WriteString(file, "options", info->options ? info->options : "", PETSC_TRUE));
  PetscCall(TrsHDF5WriteString(file, "plan", info->plan ? info->plan : "{}", PETSC_TRUE));
  if (info->metrics.n)
    PetscCall(TrsHDF5WriteReals(file, TRS_CHECKPOINT_METRICS, info->metrics.n, info->metrics.value));
  if (info->early_stopping.n)
    PetscCall(TrsHDF5WriteReals(file, TRS_CHECKPOINT_EARLY_STOPPING, info->early_stopping.n,
                                info->early_stopping.value));
  for (int t = 0; t < w->n_tensors; t++) PetscCall(create_tensor(w, t, file));
  for (int t = 0; t < w->n_tensors; t++) PetscCall(create_checksums(w, t, file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_structure(TrsWriter *w, int *memory)
{
  hid_t file;
  PetscErrorCode ierr;
  herr_t status;

  PetscFunctionBegin;
  PetscCall(TrsHDF5CreateFile(&file, memory));
  ierr = create_objects(w, file);
  status = H5Fclose(file);
  PetscCall(ierr);
  PetscCheck(status >= 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be laid out%s", w->path, TrsHDF5Error());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Is there room for all tensors and a little more? Asked first, to say how much is missing. */
static PetscErrorCode check_space(const TrsWriter *w)
{
  int64_t needed = (int64_t)64 << 10, available;
  struct statvfs disk;

  PetscFunctionBegin;
  for (int t = 0; t < w->n_tensors; t++)
    needed += w->tensor[t].rows * w->tensor[t].cols * w->tensor[t].element_bytes + 40 * w->tensor[t].n_parts +
              1024;
  if (fstatvfs(w->file.fd, &disk) != 0) PetscFunctionReturn(PETSC_SUCCESS);
  available = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
  PetscCheck(needed <= available, PETSC_COMM_SELF, TRS_ERR_IO,
             "%s: the disk is too small: %" PRId64 " bytes are needed, %" PRId64 " are free", w->path, needed,
             available);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Give the file its space for good, so that no rank's write can find the disk full. */
static PetscErrorCode reserve_space(const TrsWriter *w)
{
  off_t bytes = lseek(w->file.fd, 0, SEEK_END);
  int status, error;

  PetscFunctionBegin;
  PetscCheck(bytes > 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be written: %s", w->path, strerror(errno));
  do {
    status = fallocate(w->file.fd, 0, 0, bytes);
    error = errno;
  } while (status != 0 && error == EINTR);
  PetscCheck(status == 0 || error == EOPNOTSUPP || error == ENOSYS, PETSC_COMM_SELF, TRS_ERR_IO,
             "%s: no space for %" PRId64 " bytes: %s", w->path, (int64_t)bytes, strerror(error));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_file(TrsWriter *w)
{
  PetscErrorCode ierr;
  int memory = -1;

  PetscFunctionBegin;
  PetscCall(count_parts(w));
  PetscCall(TrsAtomicCreate(w->path, &w->file));
  PetscCall(PetscStrallocpy(w->file.temporary, &w->temporary));
  PetscCall(check_space(w));
  TrsHDF5Lock();
  ierr = create_structure(w, &memory);
  TrsHDF5Unlock();
  if (ierr == PETSC_SUCCESS) ierr = TrsAtomicFill(&w->file, memory);
  if (memory >= 0) (void)close(memory);
  PetscCall(ierr);
  PetscCall(reserve_space(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- what the other ranks must know --- */

static int64_t n_chunks(const TrsExtent *extent)
{
  return extent->offset ? (extent->rows + extent->chunk_rows - 1) / extent->chunk_rows * extent->n_bands : 0;
}

static PetscErrorCode broadcast_extent(const TrsWriter *w, TrsExtent *extent)
{
  int64_t n[TRS_EXTENT_INTS] = {
      extent->rows,       extent->cols,    extent->element_bytes, extent->chunk_rows,
      extent->chunk_cols, extent->n_bands, n_chunks(extent),      0};

  PetscFunctionBegin;
  PetscCallMPI(MPI_Bcast(n, TRS_EXTENT_INTS, MPI_INT64_T, 0, w->comm));
  if (w->rank != 0) {
    *extent = (TrsExtent){.rows = n[0],
                          .cols = n[1],
                          .element_bytes = n[2],
                          .chunk_rows = n[3],
                          .chunk_cols = n[4],
                          .n_bands = n[5]};
    if (n[6]) PetscCall(PetscMalloc1((size_t)n[6], &extent->offset));
  }
  if (n[6]) PetscCallMPI(MPI_Bcast(extent->offset, (int)n[6], MPI_INT64_T, 0, w->comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode broadcast_layout(TrsWriter *w)
{
  int n = w->rank == 0 ? (int)strlen(w->temporary) + 1 : 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Bcast(&n, 1, MPI_INT, 0, w->comm));
  if (w->rank != 0) PetscCall(PetscMalloc1(n, &w->temporary));
  PetscCallMPI(MPI_Bcast(w->temporary, n, MPI_CHAR, 0, w->comm));
  for (int t = 0; t < w->n_tensors; t++) PetscCall(broadcast_extent(w, &w->tensor[t].extent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- writing --- */

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

/* Does a row of this type hold an infinity or a NaN? Their exponents are all ones. */
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

/* What is not finite may not replace a good checkpoint. */
static PetscErrorCode check_finite(const TrsWriter *w, const TrsPart *p, const char *data, int64_t stride)
{
  const TrsFileTensor *tensor = &w->tensor[p->tensor];
  const TrsDType dtype = tensor->mean ? TRS_FP32 : tensor->tensor->dtype;

  PetscFunctionBegin;
  for (int64_t r = 0; r < p->rows; r++)
    PetscCheck(row_is_finite(dtype, p->cols, data + r * stride), PETSC_COMM_SELF, TRS_ERR_NOT_FINITE,
               "%s is not written: row %" PRId64
               " of /%s is not finite; earlier checkpoints are left as they are",
               w->path, p->row + r, tensor->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_rectangle(const TrsWriter *w, TrsPart *p, const char *data, int64_t stride)
{
  const TrsFileTensor *tensor = &w->tensor[p->tensor];
  int error;

  PetscFunctionBegin;
  PetscCall(check_finite(w, p, data, stride));
  error = TrsExtentWrite(w->fd, &tensor->extent, p->row, p->rows, p->col, p->cols, data, stride);
  PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: /%s cannot be written: %s", w->path, tensor->path,
             strerror(error));
  PetscCall(hash_rows(data, p->rows, p->cols * tensor->element_bytes, stride, &p->hash));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A part of the state: from where it is, or from a copy that the host can read. */
static PetscErrorCode write_part(TrsWriter *w, int64_t i)
{
  const TrsStateMemory *memory = &w->state->memory;
  TrsPart *p = &w->parts[i];
  const int64_t row_bytes = p->cols * w->tensor[p->tensor].element_bytes, stride = w->stride[i];
  const int64_t bytes = p->rows > 0 ? (p->rows - 1) * stride + row_bytes : 0; /* with the gaps between rows */

  PetscFunctionBegin;
  if (!memory->copy) {
    PetscCall(write_rectangle(w, p, w->data[i], stride));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (bytes > w->stage_bytes) {
    if (w->stage) PetscCall(memory->release(memory->context, &w->stage));
    PetscCall(memory->alloc(memory->context, bytes, &w->stage));
    w->stage_bytes = bytes;
  }
  PetscCall(memory->copy(memory->context, w->stage, w->data[i], bytes));
  PetscCall(write_rectangle(w, p, (const char *)w->stage, stride));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The mean over columns that are in the file already, weighted by width: computed in double, stored as float. */
static PetscErrorCode write_mean(TrsWriter *w, TrsPart *p)
{
  const TrsFileTensor *mean = &w->tensor[p->tensor];
  const TrsStateTensor *from = mean->tensor;
  const TrsFileTensor *columns = mean;
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

/* Where a round ends that begins with part i: one large part or many small ones, so that a round takes seconds. */
static int64_t end_of_round(const TrsWriter *w, int64_t i, PetscBool means)
{
  int64_t bytes = 0;

  for (; i < w->n_parts && bytes < trs_part_bytes / 2; i++)
    if (w->tensor[w->parts[i].tensor].mean == means)
      bytes += w->parts[i].rows * w->parts[i].cols * w->tensor[w->parts[i].tensor].element_bytes;
  return i;
}

/* This rank's parts, flushed to disk: first the tensors, then the means of what is in the file by then. */
static PetscErrorCode write_round(TrsWriter *w, PetscBool means, int64_t begin, int64_t end)
{
  int64_t n_written = 0;

  PetscFunctionBegin;
  if (w->fd < 0) w->fd = open(w->temporary, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  PetscCheck(w->fd >= 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s: the temporary file cannot be opened: %s",
             w->temporary, strerror(errno));
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

/* In rounds that all ranks end together, so that each sees in time that the others get on (-watchdog_seconds), or have failed. */
static PetscErrorCode write_parts(TrsWriter *w, PetscBool means)
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

/* Rank 0: the checksum tables, straight to their places. */
static PetscErrorCode write_checksums(TrsWriter *w)
{
  int64_t *next;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(w->n_tensors + 1, &next));
  for (int64_t i = 0; i < w->n_all; i++) {
    const TrsPart *p = &w->all[i];
    const int64_t row[TRS_CHECKSUM_COLUMNS] = {p->row, p->col, p->rows, p->cols, p->hash};
    int error = TrsWriteFully(w->fd, row, (int64_t)sizeof(row),
                              w->tensor[p->tensor].sums_offset + next[p->tensor]++ * (int64_t)sizeof(row));

    PetscCheck(!error, PETSC_COMM_SELF, TRS_ERR_IO, "%s: checksums cannot be written: %s", w->path,
               strerror(error));
  }
  PetscCall(PetscFree(next));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode publish(TrsWriter *w)
{
  PetscFunctionBegin;
  PetscCall(write_checksums(w));
  PetscCall(TrsAtomicPublish(&w->file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_agreed(TrsWriter *w)
{
  PetscFunctionBegin;
  PetscCall(TrsAgree(w->comm, list_parts(w)));
  PetscCall(gather_parts(w));
  PetscCall(TrsAgree(w->comm, w->rank == 0 ? create_file(w) : PETSC_SUCCESS));
  PetscCall(broadcast_layout(w));
  PetscCall(write_parts(w, PETSC_FALSE));
  if (w->has_means) PetscCall(write_parts(w, PETSC_TRUE));
  PetscCall(gather_parts(w));
  PetscCall(TrsAgree(w->comm, w->rank == 0 ? publish(w) : PETSC_SUCCESS));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_writer(TrsWriter *w)
{
  PetscFunctionBegin;
  for (int t = 0; t < w->n_tensors; t++) PetscCall(TrsExtentFree(&w->tensor[t].extent));
  if (w->fd >= 0) (void)close(w->fd);
  PetscCall(TrsAtomicDiscard(&w->file));
  PetscCall(PetscFree(w->tensor));
  PetscCall(PetscFree(w->parts));
  if (w->stage) PetscCall(w->state->memory.release(w->state->memory.context, &w->stage));
  PetscCall(PetscFree(w->data));
  PetscCall(PetscFree(w->stride));
  PetscCall(PetscFree(w->all));
  PetscCall(PetscFree(w->counts));
  PetscCall(PetscFree(w->places));
  PetscCall(PetscFree(w->temporary));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsCheckpointWrite(MPI_Comm comm, const char *path, const TrsState *state,
                                  const TrsCheckpointInfo *info)
{
  TrsWriter w = {.comm = comm, .path = path, .state = state, .info = info, .fd = -1};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &w.rank));
  PetscCallMPI(MPI_Comm_size(comm, &w.size));
  ierr = write_agreed(&w);
  PetscCall(free_writer(&w));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
