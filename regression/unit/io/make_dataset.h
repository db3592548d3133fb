/* SPDX-License-Identifier: BSD-3-Clause */
/* A small dataset file, and functions that damage it. */
#pragma once

#include "trs_test.h"

#include <hdf5.h>

#include <string.h>
#include <unistd.h>

enum { MADE_SAMPLES = 37, MADE_FEATURES = 3, MADE_DENSE = 2, MADE_CHUNK = 8 };

/*
  The law of the file's contents: feature f of sample i has (i + f) % 4 ids, and its j-th id is (7 i
  + 3 f + j) % 50.
*/
static inline int made_length(int64_t i, int f)
{
  return (int)((i + f) % 4);
}

static inline int64_t made_id(int64_t i, int f, int j)
{
  return (7 * i + 3 * f + j) % 50;
}

static inline float made_dense(int64_t i, int d)
{
  return (float)i + 0.5f * (float)d;
}

static inline float made_label(int64_t i)
{
  return (float)(i % 5) * 0.25f;
}

static inline float made_sample_weight(int64_t i)
{
  return (float)(i % 3) * 0.5f;
}

static inline float made_weight(int64_t i, int f, int j)
{
  return 1.0f + (float)i + 0.25f * (float)f + 0.0625f * (float)j;
}

typedef enum {
  MADE_PLAIN,
  MADE_CHUNKED,
  MADE_COMPRESSED,
  MADE_BIG_ENDIAN,
  MADE_NARROW,
  MADE_N_KINDS
} made_kind;

/* Write or replace a dataset. If chunk_rows is 0, it is contiguous. */
static inline void made_put(hid_t file, const char *name, hid_t file_type, hid_t type, int ndim, hsize_t rows,
                            hsize_t cols, made_kind kind, const void *data)
{
  hsize_t dims[2] = {rows, cols},
          chunk[2] = {rows && rows < MADE_CHUNK ? rows : MADE_CHUNK, cols > 1 ? cols - 1 : 1};
  hid_t create = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(ndim, dims, NULL), dataset;

  if (H5Lexists(file, name, H5P_DEFAULT) > 0) assert_true(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
  if (kind == MADE_CHUNKED || kind == MADE_COMPRESSED) assert_true(H5Pset_chunk(create, ndim, chunk) >= 0);
  if (kind == MADE_COMPRESSED)
    assert_true(H5Pset_shuffle(create) >= 0 && H5Pset_deflate(create, 4) >= 0 &&
                H5Pset_fletcher32(create) >= 0);
  dataset = H5Dcreate2(file, name, file_type, space, H5P_DEFAULT, create, H5P_DEFAULT);
  assert_true(dataset >= 0);
  if (data) assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(create);
}

static inline void made_put_int(hid_t object, const char *name, int n, const int64_t *values)
{
  hsize_t extent = (hsize_t)n;
  hid_t space = n ? H5Screate_simple(1, &extent, NULL) : H5Screate(H5S_SCALAR), attribute;

  if (H5Aexists(object, name) > 0) H5Adelete(object, name);
  attribute = H5Acreate2(object, name, n ? H5T_STD_I32BE : H5T_STD_U16LE, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(attribute, H5T_NATIVE_INT64, values) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

/* Write texts of variable length, or of 32 bytes each. If n is 0, write a scalar. */
static inline void made_put_text(hid_t object, const char *name, int n, const char *const *texts,
                                 int variable)
{
  hsize_t extent = (hsize_t)n;
  hid_t space = n ? H5Screate_simple(1, &extent, NULL) : H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1),
        attribute;
  char fixed[64][32] = {{0}};

  if (H5Aexists(object, name) > 0) H5Adelete(object, name);
  H5Tset_size(type, variable ? H5T_VARIABLE : sizeof(fixed[0]));
  for (int i = 0; i < (n ? n : 1); i++) strncpy(fixed[i], texts[i], sizeof(fixed[0]) - 1);
  attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(attribute, type, variable ? (const void *)texts : (const void *)fixed) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
}

/* Write the sparse features of samples first .. first + samples - 1. */
static inline void made_sparse(hid_t file, made_kind kind, int first, int samples)
{
  static int32_t lengths[MADE_SAMPLES][MADE_FEATURES];
  static int64_t offsets[MADE_SAMPLES + 1], values[MADE_SAMPLES * MADE_FEATURES * 3];
  static float weights[MADE_SAMPLES * MADE_FEATURES * 3];
  hid_t ids = kind == MADE_BIG_ENDIAN ? H5T_STD_I64BE : kind == MADE_NARROW ? H5T_STD_I32LE : H5T_STD_I64LE;
  int64_t n = 0;

  for (int i = 0; i < samples; i++) {
    for (int f = 0; f < MADE_FEATURES; f++) {
      lengths[i][f] = made_length(first + i, f);
      for (int j = 0; j < lengths[i][f]; j++, n++) {
        values[n] = made_id(first + i, f, j);
        weights[n] = made_weight(first + i, f, j);
      }
    }
    offsets[i + 1] = n;
  }
  made_put(file, "sparse/lengths", kind == MADE_BIG_ENDIAN ? H5T_STD_I64BE : H5T_STD_I32LE, H5T_NATIVE_INT32,
           2, (hsize_t)samples, MADE_FEATURES, kind, lengths);
  made_put(file, "sparse/offsets", kind == MADE_BIG_ENDIAN ? H5T_STD_U64BE : H5T_STD_I64LE, H5T_NATIVE_INT64,
           1, (hsize_t)samples + 1, 1, kind, offsets);
  made_put(file, "sparse/values", ids, H5T_NATIVE_INT64, 1, (hsize_t)n, 1, kind, values);
  made_put(file, "sparse/weights", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, (hsize_t)n, 1, kind, weights);
}

/* Write a valid file of this kind, with samples first .. first + samples - 1 of the law. */
static inline void made_part(const char *path, made_kind kind, int first, int samples)
{
  static float dense[MADE_SAMPLES][MADE_DENSE], labels[MADE_SAMPLES], weights[MADE_SAMPLES];
  const char *const features[MADE_FEATURES] = {"user", "item", "hist"}, *const format = "trshard-dataset";
  const int64_t num_samples = samples, version = 1, num_embeddings[MADE_FEATURES] = {50, 50, 60};
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), group;

  assert_true(file >= 0);
  for (int i = 0; i < samples; i++) {
    for (int d = 0; d < MADE_DENSE; d++) dense[i][d] = made_dense(first + i, d);
    labels[i] = made_label(first + i);
    weights[i] = made_sample_weight(first + i);
  }
  group = H5Gcreate2(file, "sparse", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  made_put_text(file, "format", 0, &format, kind % 2);
  made_put_int(file, "version", 0, &version);
  made_put_int(file, "num_samples", 0, &num_samples);
  made_put_text(group, "features", MADE_FEATURES, features, kind % 2);
  made_put_int(group, "num_embeddings", MADE_FEATURES, num_embeddings);
  H5Gclose(group);
  made_sparse(file, kind, first, samples);
  made_put(file, "dense", kind == MADE_BIG_ENDIAN ? H5T_IEEE_F64BE : H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2,
           (hsize_t)samples, MADE_DENSE, kind, dense);
  made_put(file, "labels", kind == MADE_BIG_ENDIAN ? H5T_IEEE_F32BE : H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1,
           (hsize_t)samples, 1, kind, labels);
  made_put(file, "weights", kind == MADE_BIG_ENDIAN ? H5T_IEEE_F32BE : H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1,
           (hsize_t)samples, 1, kind, weights);
  assert_true(H5Fclose(file) >= 0);
}

static inline void made_dataset(const char *path, made_kind kind)
{
  made_part(path, kind, 0, MADE_SAMPLES);
}

/* Choose the path of a new file, the same on all ranks. */
static inline void made_choose_path(const char *name, char path[4096])
{
  if (trs_rank() == 0) {
    snprintf(path, 4096, "%s/%s_%d.h5", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", name, (int)getpid());
    (void)unlink(path); /* the file of a killed process with the same number */
  }
  MPI_Bcast(path, 4096, MPI_CHAR, 0, MPI_COMM_WORLD);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static inline void made_remove(const char *path)
{
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) assert_int_equal(unlink(path), 0);
}
