/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Golden files (HDF5) for unit tests: visit all groups of a file, and read datasets and attributes
  by name.

    hid_t file = golden_open("units_kjt.h5");
    golden_for_each_group(file, one_test, NULL);   fails on a file without groups
    golden_close(file);

  If an item is missing or unreadable, the test fails with the item's name. The caller must free()
  arrays. HDF5 converts types on reading.
*/
#pragma once

#include "trs_test.h"

#include <hdf5.h>

#include <string.h>

static inline hid_t golden_open(const char *name)
{
  const char *path = trs_golden(name);
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);

  if (file < 0) fail_msg("cannot open %s", path);
  return file;
}

static inline void golden_close(hid_t file)
{
  assert_true(H5Fclose(file) >= 0);
}

/* True if a path exists below the group. Each part of the path is checked. */
static inline int golden_has(hid_t group, const char *path)
{
  char part[256];

  for (const char *slash = strchr(path, '/');; slash = strchr(slash + 1, '/')) {
    const size_t length = slash ? (size_t)(slash - path) : strlen(path);

    assert_true(length < sizeof(part));
    memcpy(part, path, length);
    part[length] = '\0';
    if (H5Lexists(group, part, H5P_DEFAULT) <= 0) return 0;
    if (!slash) return 1;
  }
}

/*
  Read a whole dataset into a new array of n elements of memory_type. If shape is not NULL, it gets
  the first two extents. A missing extent is 1.
*/
static inline void *golden_read(hid_t group, const char *path, hid_t memory_type, int64_t *n,
                                int64_t shape[2])
{
  hid_t dataset = H5Dopen2(group, path, H5P_DEFAULT), space;
  hsize_t extent[H5S_MAX_RANK] = {1, 1};
  int rank;
  int64_t count = 1;
  void *data;

  if (dataset < 0) fail_msg("no data set %s", path);
  space = H5Dget_space(dataset);
  rank = H5Sget_simple_extent_dims(space, extent, NULL);
  assert_true(rank >= 0);
  for (int i = 0; i < rank; i++) count *= (int64_t)extent[i];
  data = calloc((size_t)count + 1, H5Tget_size(memory_type)); /* not NULL even if count is 0 */
  assert_non_null(data);
  if (count > 0 && H5Dread(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
    fail_msg("cannot read %s", path);
  if (n) *n = count;
  if (shape) {
    shape[0] = rank > 0 ? (int64_t)extent[0] : 1;
    shape[1] = rank > 1 ? (int64_t)extent[1] : 1;
  }
  assert_true(H5Sclose(space) >= 0 && H5Dclose(dataset) >= 0);
  return data;
}

static inline int64_t *golden_int64(hid_t group, const char *path, int64_t *n)
{
  return (int64_t *)golden_read(group, path, H5T_NATIVE_INT64, n, NULL);
}

static inline int32_t *golden_int32(hid_t group, const char *path, int64_t *n)
{
  return (int32_t *)golden_read(group, path, H5T_NATIVE_INT32, n, NULL);
}

static inline float *golden_float(hid_t group, const char *path, int64_t *n)
{
  return (float *)golden_read(group, path, H5T_NATIVE_FLOAT, n, NULL);
}

static inline double *golden_double(hid_t group, const char *path, int64_t *n)
{
  return (double *)golden_read(group, path, H5T_NATIVE_DOUBLE, n, NULL);
}

static inline uint8_t *golden_bytes(hid_t group, const char *path, int64_t *n)
{
  return (uint8_t *)golden_read(group, path, H5T_NATIVE_UINT8, n, NULL);
}

/* Read a list of strings, with 64 bytes for each. */
static inline char (*golden_strings(hid_t group, const char *path, int64_t *n))[64]
{
  hid_t dataset = H5Dopen2(group, path, H5P_DEFAULT), type;
  char **text, (*list)[64];

  if (dataset < 0) fail_msg("no data set %s", path);
  type = H5Dget_type(dataset);
  if (H5Tis_variable_str(type) <= 0) fail_msg("%s does not hold strings", path);
  text = (char **)golden_read(group, path, type, n, NULL);
  list = calloc((size_t)*n + 1, sizeof(*list));
  assert_non_null(list);
  for (int64_t i = 0; i < *n; i++) {
    snprintf(list[i], sizeof(list[i]), "%s", text[i]);
    H5free_memory(text[i]);
  }
  free(text);
  assert_true(H5Tclose(type) >= 0 && H5Dclose(dataset) >= 0);
  return list;
}

static inline int golden_has_attribute(hid_t group, const char *name)
{
  return H5Aexists(group, name) > 0;
}

/* Read a number. If the attribute does not exist, return `missing`. */
static inline double golden_number(hid_t group, const char *name, double missing)
{
  double value = missing;
  hid_t attribute;

  if (!golden_has_attribute(group, name)) return missing;
  attribute = H5Aopen(group, name, H5P_DEFAULT);
  if (H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) < 0) fail_msg("attribute %s is no number", name);
  assert_true(H5Aclose(attribute) >= 0);
  return value;
}

/* Read an array of integers. The caller must free() it. */
static inline int64_t *golden_attribute_int64(hid_t group, const char *name, int64_t *n)
{
  hid_t attribute = H5Aopen(group, name, H5P_DEFAULT), space;
  int64_t *value;

  if (attribute < 0) fail_msg("no attribute %s", name);
  space = H5Aget_space(attribute);
  *n = H5Sget_simple_extent_npoints(space);
  value = calloc((size_t)*n + 1, sizeof(*value));
  assert_non_null(value);
  if (*n > 0) assert_true(H5Aread(attribute, H5T_NATIVE_INT64, value) >= 0);
  assert_true(H5Sclose(space) >= 0 && H5Aclose(attribute) >= 0);
  return value;
}

/* Read a string attribute of fixed or variable length. The text is "" if it does not exist. */
static inline void golden_string(hid_t group, const char *name, char *text, size_t n)
{
  hid_t attribute, type;

  text[0] = '\0';
  if (!golden_has_attribute(group, name)) return;
  attribute = H5Aopen(group, name, H5P_DEFAULT);
  type = H5Aget_type(attribute);
  if (H5Tis_variable_str(type) > 0) {
    char *value = NULL;

    assert_true(H5Aread(attribute, type, &value) >= 0);
    snprintf(text, n, "%s", value ? value : "");
    H5free_memory(value);
  } else {
    assert_true(H5Tget_size(type) < n);
    assert_true(H5Aread(attribute, type, text) >= 0);
    text[H5Tget_size(type)] = '\0';
  }
  assert_true(H5Tclose(type) >= 0 && H5Aclose(attribute) >= 0);
}

typedef void (*golden_visitor)(hid_t group, const char *name, void *context);

/* Call visit for each group directly below `parent`, in the order of their names. */
static inline void golden_for_each_group(hid_t parent, golden_visitor visit, void *context)
{
  H5G_info_t info;
  int n_groups = 0;

  assert_true(H5Gget_info(parent, &info) >= 0);
  for (hsize_t i = 0; i < info.nlinks; i++) {
    char name[256];
    H5O_info_t object;
    hid_t group;

    assert_true(
        H5Lget_name_by_idx(parent, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof(name), H5P_DEFAULT) > 0);
    assert_true(H5Oget_info_by_name(parent, name, &object, H5P_DEFAULT) >= 0);
    if (object.type != H5O_TYPE_GROUP) continue;
    group = H5Gopen2(parent, name, H5P_DEFAULT);
    assert_true(group >= 0);
    visit(group, name, context);
    assert_true(H5Gclose(group) >= 0);
    n_groups++;
  }
  if (n_groups == 0) fail_msg("the golden file has no groups");
}
