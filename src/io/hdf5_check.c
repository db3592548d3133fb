/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Checks how datasets of other programs' files are stored. No number in a file is trusted if the
  file does not have the bytes for it.
*/
#include "io/hdf5_util.h"

#include <inttypes.h>
#include <stdio.h>

static const int64_t max_chunk_bytes = (int64_t)256 << 20;

void TrsHDF5ShapeText(const TrsHDF5Shape *shape, char *text, size_t n)
{
  const char *kind = shape->type_class == H5T_FLOAT     ? "float"
                     : shape->type_class == H5T_INTEGER ? "int"
                                                        : "other";
  int bits = 8 * (int)shape->type_bytes;

  if (shape->ndim == 0) {
    snprintf(text, n, "%s%d scalar", kind, bits);
  } else if (shape->ndim == 1) {
    snprintf(text, n, "%s%d [%" PRId64 "]", kind, bits, shape->dims[0]);
  } else {
    snprintf(text, n, "%s%d [%" PRId64 ", %" PRId64 "]", kind, bits, shape->dims[0], shape->dims[1]);
  }
}

static PetscErrorCode check_type(const TrsHDF5File *file, const char *name, hid_t dataset,
                                 TrsHDF5Shape *shape)
{
  static const char *const names[] = {"integers",     "floating-point numbers",
                                      "times",        "strings",
                                      "bit fields",   "opaque data",
                                      "compounds",    "references",
                                      "enumerations", "variable-length lists",
                                      "arrays"};
  hid_t type;

  PetscFunctionBegin;
  TrsReadHDF5(file, type = H5Dget_type(dataset));
  shape->type_class = H5Tget_class(type);
  shape->type_bytes = H5Tget_size(type);
  TrsReadHDF5(file, H5Tclose(type));
  PetscCheck((shape->type_class == H5T_INTEGER || shape->type_class == H5T_FLOAT) && shape->type_bytes <= 8,
             PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s holds %s of %zu bytes, expected integers or floating-point numbers of at most 8",
             file->path, name,
             shape->type_class >= 0 && shape->type_class <= H5T_ARRAY ? names[shape->type_class]
                                                                      : "data of unknown type",
             shape->type_bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_extent(const TrsHDF5File *file, const char *name, hid_t dataset,
                                   TrsHDF5Shape *shape, int64_t *bytes)
{
  hid_t space;
  hsize_t dims[2] = {1, 1};

  PetscFunctionBegin;
  TrsReadHDF5(file, space = H5Dget_space(dataset));
  shape->ndim = H5Sget_simple_extent_type(space) == H5S_NULL ? -1 : H5Sget_simple_extent_ndims(space);
  PetscCheck(shape->ndim >= 1 && shape->ndim <= 2, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s has %d dimensions, expected 1 or 2", file->path, name, shape->ndim);
  (void)H5Sget_simple_extent_dims(space, dims, NULL);
  TrsReadHDF5(file, H5Sclose(space));
  PetscCheck(dims[0] <= INT64_MAX && dims[1] <= INT64_MAX &&
                 !__builtin_mul_overflow((int64_t)dims[0], (int64_t)dims[1], bytes) &&
                 !__builtin_mul_overflow(*bytes, (int64_t)shape->type_bytes, bytes),
             PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s claims %" PRIuHSIZE " x %" PRIuHSIZE " elements, more than any file holds", file->path,
             name, dims[0], dims[1]);
  shape->dims[0] = (int64_t)dims[0];
  shape->dims[1] = (int64_t)dims[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Allow only built-in filters, and each filter at most once. With nested filters, a few bytes could
  unpack to a huge size.
*/
static PetscErrorCode check_filters(const TrsHDF5File *file, const char *name, hid_t create)
{
  int n = H5Pget_nfilters(create);
  unsigned seen = 0;

  PetscFunctionBegin;
  for (int i = 0; i < n; i++) {
    unsigned flags, config;
    size_t n_values = 0;
    H5Z_filter_t filter = H5Pget_filter2(create, (unsigned)i, &flags, &n_values, NULL, 0, NULL, &config);

    PetscCheck(
        filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32,
        PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s has filter %d; gzip, shuffle and fletcher32 are allowed",
        file->path, name, (int)filter);
    PetscCheck(!(seen & (1u << filter)), PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s has filter %d twice",
               file->path, name, (int)filter);
    seen |= 1u << filter;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_contiguous(const TrsHDF5File *file, const char *name, hid_t dataset,
                                       int64_t bytes)
{
  haddr_t offset = H5Dget_offset(dataset);

  PetscFunctionBegin;
  if (bytes == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(offset != HADDR_UNDEF && offset < (haddr_t)file->bytes && bytes <= file->bytes - (int64_t)offset,
             PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s claims %" PRId64 " bytes, but the file (%" PRId64 " bytes) does not hold them",
             file->path, name, bytes, file->bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_chunks(const TrsHDF5File *file, const char *name, hid_t dataset, hid_t create,
                                   const TrsHDF5Shape *shape)
{
  hsize_t chunk[2] = {1, 1}, n_chunks = 0;
  int64_t chunk_bytes = (int64_t)shape->type_bytes, expected = 1;
  hid_t space;

  PetscFunctionBegin;
  PetscCheck(H5Pget_chunk(create, shape->ndim, chunk) == shape->ndim, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s has bad chunks", file->path, name);
  for (int d = 0; d < shape->ndim; d++) {
    PetscCheck(chunk[d] > 0 && chunk[d] <= (hsize_t)max_chunk_bytes &&
                   !__builtin_mul_overflow(chunk_bytes, (int64_t)chunk[d], &chunk_bytes) &&
                   chunk_bytes <= max_chunk_bytes,
               PETSC_COMM_SELF, TRS_ERR_DATA, "%s: a chunk of /%s is larger than %" PRId64 " bytes",
               file->path, name, max_chunk_bytes);
    /* The product is at most the number of elements, so it cannot overflow. */
    expected *= (shape->dims[d] + (int64_t)chunk[d] - 1) / (int64_t)chunk[d];
  }
  TrsReadHDF5(file, space = H5Dget_space(dataset));
  PetscCheck(H5Dget_num_chunks(dataset, space, &n_chunks) >= 0 && (int64_t)n_chunks == expected &&
                 H5Dget_storage_size(dataset) <= (hsize_t)file->bytes,
             PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s claims %" PRId64 " chunks of %" PRId64 " bytes, but the file (%" PRId64
             " bytes) holds %" PRIuHSIZE " of them%s",
             file->path, name, expected, chunk_bytes, file->bytes, n_chunks, TrsHDF5Error());
  TrsReadHDF5(file, H5Sclose(space));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode check_storage(const TrsHDF5File *file, const char *name, hid_t dataset, hid_t create,
                                    TrsHDF5Shape *shape)
{
  H5D_layout_t layout = H5Pget_layout(create);
  int64_t bytes;

  PetscFunctionBegin;
  PetscCheck(layout == H5D_CONTIGUOUS || layout == H5D_CHUNKED || layout == H5D_COMPACT, PETSC_COMM_SELF,
             TRS_ERR_DATA, "%s: /%s is a virtual dataset, which is not allowed in an input", file->path,
             name);
  PetscCheck(H5Pget_external_count(create) == 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /%s keeps its data in another file, which is not allowed in an input", file->path, name);
  PetscCall(check_extent(file, name, dataset, shape, &bytes));
  PetscCall(check_filters(file, name, create));
  if (layout == H5D_CONTIGUOUS) PetscCall(check_contiguous(file, name, dataset, bytes));
  if (layout == H5D_CHUNKED) PetscCall(check_chunks(file, name, dataset, create, shape));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The property list is closed on every path. If the list of a virtual dataset is left open, the
  library crashes at exit.
*/
PetscErrorCode TrsHDF5CheckDataset(const TrsHDF5File *file, const char *name, hid_t dataset,
                                   TrsHDF5Shape *shape)
{
  hid_t create;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(check_type(file, name, dataset, shape));
  TrsReadHDF5(file, create = H5Dget_create_plist(dataset));
  ierr = check_storage(file, name, dataset, create, shape);
  (void)H5Pclose(create);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
