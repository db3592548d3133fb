/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* needed for fallocate. NOLINT(bugprone-reserved-identifier) */
#include "io/checkpoint/impl.h"
#include "io/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

PetscErrorCode TrsCheckpointType(TrsDType dtype, hid_t *type)
{
  PetscFunctionBegin;
  if (dtype == TRS_FP16) {
    PetscCall(TrsHDF5HalfType(type));
  } else {
    const hid_t plain = dtype == TRS_BF16    ? H5T_STD_U16LE
                        : dtype == TRS_UINT8 ? H5T_STD_U8LE
                        : dtype == TRS_INT32 ? H5T_STD_I32LE
                        : dtype == TRS_INT64 ? H5T_STD_I64LE
                                             : H5T_IEEE_F32LE;

    TrsCallHDF5(*type = H5Tcopy(plain));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the file's structure: made on rank 0 with serial HDF5, under the lock --- */

/* Check that the parts cover each tensor: their sizes must add up to the tensor's size. */
static PetscErrorCode count_parts(TrsCheckpointWriter w)
{
  int64_t *covered;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(w->n_tensors + 1, &covered));
  for (int64_t i = 0; i < w->n_all; i++) {
    const TrsCheckpointPart *p = &w->all[i];

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
  Choose chunks for a tensor that is cut into column parts of equal width, so that each part is
  contiguous in the file. A chunk has about trs_part_bytes bytes. Its size is chosen so that the
  last chunk needs little padding. Returns false if the tensor must be contiguous.
*/
static PetscBool choose_chunk(const struct TrsCheckpointWriterImpl *w, int t, int64_t chunk[2])
{
  const TrsCheckpointFileTensor *tensor = &w->tensor[t];
  int64_t width = 0, n;

  for (int64_t i = 0; i < w->n_all; i++)
    if (w->all[i].tensor == t && w->all[i].cols > width) width = w->all[i].cols;
  if (tensor->ndim != 2 || width == 0 || width == tensor->cols) return PETSC_FALSE;
  for (int64_t i = 0; i < w->n_all; i++) {
    const TrsCheckpointPart *p = &w->all[i];

    if (p->tensor == t && (p->col % width != 0 || (p->cols != width && p->col + p->cols != tensor->cols)))
      return PETSC_FALSE;
  }
  n = tensor->rows * width * tensor->element_bytes / trs_part_bytes + 1;
  chunk[0] = (tensor->rows + n - 1) / n;
  chunk[1] = width;
  return PETSC_TRUE;
}

static PetscErrorCode create_tensor(TrsCheckpointWriter w, int t, hid_t file)
{
  TrsCheckpointFileTensor *tensor = &w->tensor[t];
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

PetscBool TrsCheckpointSumsPath(const char *tensor, char path[TRS_CHECKPOINT_MAX_NAME])
{
  return (PetscBool)(snprintf(path, TRS_CHECKPOINT_MAX_NAME, TRS_CHECKSUMS "/%s", tensor) <
                     TRS_CHECKPOINT_MAX_NAME);
}

PetscErrorCode TrsCheckpointTryNames(const char *path, const TrsState *state)
{
  const int most = TRS_CHECKPOINT_MAX_NAME - (int)sizeof(TRS_CHECKSUMS "/");
  char name[TRS_CHECKPOINT_MAX_NAME];

  PetscFunctionBegin;
  for (int t = 0; path && t < state->n; t++)
    PetscCheck(TrsCheckpointSumsPath(state->tensor[t].path, name), PETSC_COMM_SELF, TRS_ERR_OPTION,
               "%s: a checkpoint has no room for the name of the tensor %.60s...: more than %d bytes. Give "
               "the table (-tables), or the feature in the dataset, a shorter name",
               path, state->tensor[t].path, most);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_checksums(TrsCheckpointWriter w, int t, hid_t file)
{
  const int64_t dims[2] = {w->tensor[t].n_parts, TRS_CHECKSUM_COLUMNS};
  char name[TRS_CHECKPOINT_MAX_NAME];
  hid_t dataset, tensor;

  PetscFunctionBegin;
  if (dims[0] == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(TrsCheckpointSumsPath(w->tensor[t].path, name), PETSC_COMM_SELF, TRS_ERR_OPTION,
             "%s: the name is too long for a checkpoint", w->tensor[t].path);
  PetscCall(TrsHDF5CreateDataset(file, name, H5T_STD_I64LE, 2, dims, NULL, PETSC_TRUE, &dataset));
  w->tensor[t].sums_offset = (int64_t)H5Dget_offset(dataset);
  TrsCallHDF5(tensor = H5Dopen2(file, w->tensor[t].path, H5P_DEFAULT));
  PetscCall(TrsCheckpointSealAttributes(tensor, dataset));
  TrsCallHDF5(H5Dclose(tensor));
  TrsCallHDF5(H5Dclose(dataset));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the checksums of the root's attributes. All attributes must exist before. */
static PetscErrorCode seal_root(hid_t file)
{
  /* A file without tensors has no group for checksums. */
  const htri_t exists = H5Lexists(file, TRS_CHECKSUMS, H5P_DEFAULT);
  hid_t sums;

  PetscFunctionBegin;
  TrsCallHDF5(sums = exists > 0 ? H5Gopen2(file, TRS_CHECKSUMS, H5P_DEFAULT)
                                : H5Gcreate2(file, TRS_CHECKSUMS, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  PetscCall(TrsCheckpointSealAttributes(file, sums));
  TrsCallHDF5(H5Gclose(sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_objects(TrsCheckpointWriter w, hid_t file)
{
  const TrsCheckpointInfo *info = w->info;
  const char *format = info->is_delta       ? TRS_DELTA_FORMAT
                       : info->is_increment ? TRS_INCREMENT_FORMAT
                                            : TRS_CHECKPOINT_FORMAT;
  const int64_t version = info->is_delta       ? TRS_DELTA_VERSION
                          : info->is_increment ? TRS_INCREMENT_VERSION
                                               : TRS_CHECKPOINT_VERSION;

  PetscFunctionBegin;
  PetscCall(TrsHDF5WriteString(file, "format", format, PETSC_TRUE));
  PetscCall(TrsHDF5WriteInts(file, "version", 0, &version));
  PetscCall(TrsHDF5WriteInts(file, "step", 0, &info->step));
  if (info->states_from[TRS_STATES_TABLES] || info->states_from[TRS_STATES_DENSE])
    PetscCall(TrsHDF5WriteInts(file, "states_from", TRS_STATES_KINDS, info->states_from));
  PetscCall(TrsHDF5WriteInts(file, "epoch", 0, &info->epoch));
  PetscCall(TrsHDF5WriteInts(file, "samples_seen", 0, &info->samples_seen));
  PetscCall(TrsHDF5WriteInts(file, "run_step", 0, &info->run_step));
  PetscCall(TrsHDF5WriteInts(file, "global_batch", 0, &info->global_batch));
  if (info->epoch_steps) PetscCall(TrsHDF5WriteInts(file, "epoch_steps", 0, &info->epoch_steps));
  if (info->evaluation_due) PetscCall(TrsHDF5WriteInts(file, "evaluation_due", 0, &info->evaluation_due));
  if (info->data_samples) {
    PetscCall(TrsHDF5WriteInts(file, "data_samples", 0, &info->data_samples));
    PetscCall(TrsHDF5WriteInts(file, "data_hash", 0, &info->data_hash));
  }
  if (info->follows) {
    const int64_t counts[2] = {info->follow_place.taken, info->follow_place.samples};

    PetscCall(TrsHDF5WriteInts(file, "follow_position", 0, &info->follow_place.position));
    PetscCall(TrsHDF5WriteString(file, "follow_file", info->follow_place.file, PETSC_TRUE));
    PetscCall(TrsHDF5WriteInts(file, "follow_samples", 2, counts));
    PetscCall(TrsHDF5WriteInts(file, "follow_hash", 0, &info->follow_place.hash));
  }
  if (info->run_id[0]) PetscCall(TrsHDF5WriteString(file, TRS_CHECKPOINT_RUN_ID, info->run_id, PETSC_TRUE));
  PetscCall(TrsHDF5WriteString(file, "options", info->options ? info->options : "", PETSC_TRUE));
  PetscCall(TrsHDF5WriteString(file, "plan", info->plan ? info->plan : "{}", PETSC_TRUE));
  if (info->model) PetscCall(TrsHDF5WriteString(file, TRS_CHECKPOINT_MODEL, info->model, PETSC_TRUE));
  if (info->mapping) PetscCall(TrsHDF5WriteString(file, TRS_MAPPING_ATTRIBUTE, info->mapping, PETSC_TRUE));
  if (info->metrics.n)
    PetscCall(TrsHDF5WriteReals(file, TRS_CHECKPOINT_METRICS, info->metrics.n, info->metrics.value));
  if (info->metrics_exact.n)
    PetscCall(TrsHDF5WriteReals(file, TRS_CHECKPOINT_METRICS_EXACT, info->metrics_exact.n,
                                info->metrics_exact.value));
  if (info->metrics_window.n)
    PetscCall(TrsHDF5WriteReals(file, TRS_CHECKPOINT_METRICS_WINDOW, info->metrics_window.n,
                                info->metrics_window.value));
  if (info->metrics.n && info->metrics_of)
    PetscCall(TrsHDF5WriteString(file, "metrics_of", info->metrics_of, PETSC_TRUE));
  if (info->early_stopping.n)
    PetscCall(TrsHDF5WriteReals(file, TRS_CHECKPOINT_EARLY_STOPPING, info->early_stopping.n,
                                info->early_stopping.value));
  PetscCall(TrsCheckpointWritePlace(file, info));
  for (int t = 0; t < w->n_tensors; t++) PetscCall(create_tensor(w, t, file));
  for (int t = 0; t < w->n_tensors; t++) PetscCall(create_checksums(w, t, file));
  PetscCall(seal_root(file));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_structure(TrsCheckpointWriter w, int *memory)
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

/*
  Check that the disk has space for all tensors and a little more. If not, report how much is
  missing.
*/
static PetscErrorCode check_space(const struct TrsCheckpointWriterImpl *w)
{
  const int64_t numbers = (int64_t)w->info->metrics_exact.n + w->info->metrics_window.n;
  const int64_t text = w->info->mapping ? (int64_t)strlen(w->info->mapping) : 0;
  int64_t needed = ((int64_t)64 << 10) + numbers * (int64_t)sizeof(double) + text, available;
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

/* Reserve the file's space, so that no rank finds the disk full when it writes. */
static PetscErrorCode reserve_space(const struct TrsCheckpointWriterImpl *w)
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

PetscErrorCode TrsCheckpointCreateFile(TrsCheckpointWriter w)
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

/* --- broadcast of the layout --- */

static int64_t n_chunks(const TrsExtent *extent)
{
  return extent->offset ? (extent->rows + extent->chunk_rows - 1) / extent->chunk_rows * extent->n_bands : 0;
}

enum { TRS_EXTENT_INTS = 8 };

static PetscErrorCode broadcast_extent(const struct TrsCheckpointWriterImpl *w, TrsExtent *extent)
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

PetscErrorCode TrsCheckpointBroadcastLayout(TrsCheckpointWriter w)
{
  int n = w->rank == 0 ? (int)strlen(w->temporary) + 1 : 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Bcast(&n, 1, MPI_INT, 0, w->comm));
  if (w->rank != 0) PetscCall(PetscMalloc1(n, &w->temporary));
  PetscCallMPI(MPI_Bcast(w->temporary, n, MPI_CHAR, 0, w->comm));
  for (int t = 0; t < w->n_tensors; t++) PetscCall(broadcast_extent(w, &w->tensor[t].extent));
  PetscFunctionReturn(PETSC_SUCCESS);
}
