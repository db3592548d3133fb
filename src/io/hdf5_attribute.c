/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads strings and integers from attributes in files of other programs. */
#include "io/hdf5_util.h"

#include <inttypes.h>
#include <string.h>

/* Larger attributes are refused. */
static const hsize_t max_attribute_bytes = (hsize_t)64 << 20;

/*
  Open an attribute. If it is missing and may be missing, *id is -1. `where` is the object's name
  for messages: "" for the root, or for example "sparse".
*/
static PetscErrorCode open_attribute(const TrsHDF5File *file, hid_t object, const char *where,
                                     const char *name, PetscBool *found, hid_t *id)
{
  htri_t exists = H5Aexists(object, name);

  PetscFunctionBegin;
  *id = -1;
  if (found) *found = exists > 0 ? PETSC_TRUE : PETSC_FALSE;
  if (found && exists == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(exists > 0, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: /%s has no attribute %s", file->path, where,
             name);
  *id = H5Aopen(object, name, H5P_DEFAULT);
  PetscCheck(*id >= 0 && H5Aget_storage_size(*id) <= max_attribute_bytes, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s of /%s cannot be read%s", file->path, name, where, TrsHDF5Error());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Get the number of elements and the type of a scalar or one-dimensional attribute. */
static PetscErrorCode attribute_extent(const TrsHDF5File *file, hid_t attribute, const char *where,
                                       const char *name, H5T_class_t want, hssize_t *n, hid_t *type)
{
  hid_t space;
  int ndim;

  PetscFunctionBegin;
  TrsReadHDF5(file, space = H5Aget_space(attribute));
  TrsReadHDF5(file, ndim = H5Sget_simple_extent_ndims(space));
  *n = H5Sget_simple_extent_npoints(space);
  TrsReadHDF5(file, H5Sclose(space));
  TrsReadHDF5(file, *type = H5Aget_type(attribute));
  PetscCheck(H5Tget_class(*type) == want && ndim <= 1 && *n >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s of /%s is not %s", file->path, name, where,
             want == H5T_STRING    ? "a string or a list of strings"
             : want == H5T_INTEGER ? "an integer or a list of integers"
                                   : "a list of floating-point numbers");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read texts of variable length. HDF5 owns the pointers that it returns. */
static PetscErrorCode read_variable(const TrsHDF5File *file, hid_t attribute, const char *name, hid_t memory,
                                    hid_t space, int n, char ***list)
{
  char **texts;
  size_t bytes = 0;
  char *next;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(n, &texts));
  PetscCheck(H5Aread(attribute, memory, texts) >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s cannot be read%s", file->path, name, TrsHDF5Error());
  for (int i = 0; i < n; i++) bytes += texts[i] ? strlen(texts[i]) + 1 : 1;
  PetscCall(PetscMalloc((size_t)n * sizeof(char *) + bytes, list));
  next = (char *)(*list + n);
  for (int i = 0; i < n; i++) {
    size_t length = texts[i] ? strlen(texts[i]) : 0;

    if (length) memcpy(next, texts[i], length);
    next[length] = '\0';
    (*list)[i] = next;
    next += length + 1;
  }
  TrsReadHDF5(file, H5Dvlen_reclaim(memory, space, H5P_DEFAULT, texts));
  PetscCall(PetscFree(texts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_fixed(const TrsHDF5File *file, hid_t attribute, const char *name, hid_t memory,
                                 int n, char ***list)
{
  size_t width = H5Tget_size(memory);
  char *raw, *next;

  PetscFunctionBegin;
  PetscCheck(width > 0 && (hsize_t)width * (hsize_t)n <= max_attribute_bytes, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s claims strings of %zu bytes", file->path, name, width);
  PetscCall(PetscMalloc(width * (size_t)n, &raw));
  PetscCheck(H5Aread(attribute, memory, raw) >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s cannot be read%s", file->path, name, TrsHDF5Error());
  PetscCall(PetscMalloc((size_t)n * sizeof(char *) + (width + 1) * (size_t)n, list));
  next = (char *)(*list + n);
  for (int i = 0; i < n; i++, next += width + 1) {
    memcpy(next, raw + (size_t)i * width, width);
    next[width] = '\0';
    if (H5Tget_strpad(memory) == H5T_STR_SPACEPAD) {
      for (size_t c = width; c > 0 && next[c - 1] == ' '; c--) next[c - 1] = '\0';
    }
    (*list)[i] = next;
  }
  PetscCall(PetscFree(raw));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_texts(const TrsHDF5File *file, hid_t attribute, const char *where,
                                 const char *name, int *n, char ***list)
{
  hid_t type, space;
  hssize_t count;

  PetscFunctionBegin;
  PetscCall(attribute_extent(file, attribute, where, name, H5T_STRING, &count, &type));
  PetscCheck(count <= 1000000, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: attribute %s of /%s claims %lld strings",
             file->path, name, where, (long long)count);
  *n = (int)count;
  TrsReadHDF5(file, space = H5Aget_space(attribute));
  if (H5Tis_variable_str(type) > 0) {
    PetscCall(read_variable(file, attribute, name, type, space, *n, list));
  } else {
    PetscCall(read_fixed(file, attribute, name, type, *n, list));
  }
  TrsReadHDF5(file, H5Sclose(space));
  TrsReadHDF5(file, H5Tclose(type));
  TrsReadHDF5(file, H5Aclose(attribute));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5ReadStrings(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                                  int *n, char ***list)
{
  hid_t attribute;

  PetscFunctionBegin;
  PetscCall(open_attribute(file, object, where, name, NULL, &attribute));
  PetscCall(read_texts(file, attribute, where, name, n, list));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5ReadString(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                                 PetscBool *found, char **text)
{
  hid_t attribute;
  char **list;
  int n;

  PetscFunctionBegin;
  *text = NULL;
  PetscCall(open_attribute(file, object, where, name, found, &attribute));
  if (attribute < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(read_texts(file, attribute, where, name, &n, &list));
  PetscCheck(n == 1, PETSC_COMM_SELF, TRS_ERR_DATA, "%s: attribute %s of /%s holds %d strings, expected 1",
             file->path, name, where, n);
  PetscCall(PetscStrallocpy(list[0], text));
  PetscCall(PetscFree(list));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5ReadInts(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                               int n, PetscBool *found, int64_t *values)
{
  hid_t attribute, type;
  hssize_t count;

  PetscFunctionBegin;
  PetscCall(open_attribute(file, object, where, name, found, &attribute));
  if (attribute < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(attribute_extent(file, attribute, where, name, H5T_INTEGER, &count, &type));
  PetscCheck(count == n, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s of /%s has %lld entries, expected %d", file->path, name, where,
             (long long)count, n);
  PetscCheck(H5Aread(attribute, H5T_NATIVE_INT64, values) >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s of /%s cannot be read%s", file->path, name, where, TrsHDF5Error());
  TrsReadHDF5(file, H5Tclose(type));
  TrsReadHDF5(file, H5Aclose(attribute));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5ReadCount(const TrsHDF5File *file, const char *name, int64_t most, int64_t *value)
{
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(TrsHDF5ReadInts(file, file->id, "", name, 1, &found, value));
  PetscCheck(!found || (*value >= 0 && *value <= most), PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: %s %" PRId64 ", expected 0 to %" PRId64, file->path, name, *value, most);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5ReadReals(const TrsHDF5File *file, hid_t object, const char *where, const char *name,
                                PetscBool *found, int *n, double **values)
{
  hid_t attribute, type;
  hssize_t count;

  PetscFunctionBegin;
  *n = 0;
  *values = NULL;
  PetscCall(open_attribute(file, object, where, name, found, &attribute));
  if (attribute < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(attribute_extent(file, attribute, where, name, H5T_FLOAT, &count, &type));
  PetscCheck(count >= 1 && count <= 1 << 24, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s of /%s claims %lld numbers", file->path, name, where, (long long)count);
  *n = (int)count;
  PetscCall(PetscMalloc1((size_t)count, values));
  PetscCheck(H5Aread(attribute, H5T_NATIVE_DOUBLE, *values) >= 0, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: attribute %s of /%s cannot be read%s", file->path, name, where, TrsHDF5Error());
  TrsReadHDF5(file, H5Tclose(type));
  TrsReadHDF5(file, H5Aclose(attribute));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5WriteString(hid_t object, const char *name, const char *text, PetscBool fixed)
{
  hid_t type, space, attribute;
  size_t length = strlen(text);

  PetscFunctionBegin;
  TrsCallHDF5(type = H5Tcopy(H5T_C_S1));
  TrsCallHDF5(H5Tset_cset(type, H5T_CSET_UTF8));
  TrsCallHDF5(H5Tset_size(type, !fixed ? H5T_VARIABLE : length ? length : 1));
  if (fixed) TrsCallHDF5(H5Tset_strpad(type, H5T_STR_NULLPAD));
  TrsCallHDF5(space = H5Screate(H5S_SCALAR));
  TrsCallHDF5(attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT));
  TrsCallHDF5(H5Awrite(attribute, type, fixed ? (const void *)text : (const void *)&text));
  TrsCallHDF5(H5Aclose(attribute));
  TrsCallHDF5(H5Sclose(space));
  TrsCallHDF5(H5Tclose(type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode write_numbers(hid_t object, const char *name, int n, hid_t file_type, hid_t type,
                                    const void *values)
{
  hid_t space, attribute;
  hsize_t extent = (hsize_t)n;

  PetscFunctionBegin;
  TrsCallHDF5(space = n ? H5Screate_simple(1, &extent, NULL) : H5Screate(H5S_SCALAR));
  TrsCallHDF5(attribute = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT));
  TrsCallHDF5(H5Awrite(attribute, type, values));
  TrsCallHDF5(H5Aclose(attribute));
  TrsCallHDF5(H5Sclose(space));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5WriteInts(hid_t object, const char *name, int n, const int64_t *values)
{
  PetscFunctionBegin;
  PetscCall(write_numbers(object, name, n, H5T_STD_I64LE, H5T_NATIVE_INT64, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHDF5WriteReals(hid_t object, const char *name, int n, const double *values)
{
  PetscFunctionBegin;
  PetscCall(write_numbers(object, name, n, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}
