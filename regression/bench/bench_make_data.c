/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Makes a dataset of random numbers for the benchmarks, on machines without Python.

    bench_make_data -output FILE [-samples 32768] [-features 26 | -names a,b] [-rows 1M]
                    [-pooling 1] [-dense 13]

  Each list has one entry for each feature, or one entry for all features. Bags have a fixed number
  of ids. Ids and labels are uniformly random, so there is nothing to learn. tools/generate_data.py
  makes data from which a model can learn. The same options give the same file.
*/
#include "bench.h"
#include "core/options/options.h"
#include "core/random/random.h"
#include "io/hdf5_util.h"

#include <string.h>

static const TrsOptionSpec specs[] = {
    {"-output", TRS_OPTION_FILE, NULL, NULL, NULL, NULL, "the dataset to be written"},
    {"-samples", TRS_OPTION_INT, "32768", "[1,100M]", NULL, NULL, "samples"},
    {"-features", TRS_OPTION_INT, "26", "[1,100000]", NULL, NULL, "features, named cat_0, cat_1 and so on"},
    {"-names", TRS_OPTION_STRINGS, NULL, NULL, NULL, NULL, "their names instead"},
    {"-rows", TRS_OPTION_INTS, "1M", "[1,2147483647]", NULL, NULL, "ids of a feature are below"},
    {"-pooling", TRS_OPTION_INTS, "1", "[0,10000]", NULL, NULL, "ids of a bag"},
    {"-dense", TRS_OPTION_INT, "13", "[0,10000]", NULL, NULL, "dense features"},
};
static const TrsOptionGroup bench_options = TRS_OPTION_GROUP("Data", specs);

typedef struct {
  hid_t file, sparse;
  const char *path;
  int64_t samples, dense, ids; /* ids is the number of ids in a sample */
  int features;
  char (*name)[64]; /* [features] */
  int64_t *rows, *pooling;
} made;

/*
  A random number that depends only on `part` and `place`. Each dataset of the file has its own
  part.
*/
static uint32_t random_word(uint64_t part, int64_t place)
{
  uint32_t word[4];

  TrsRandom(1, TRS_RANDOM_TEST, part, (uint64_t)place / 4, word);
  return word[place % 4];
}

static PetscErrorCode put(hid_t where, const char *name, hid_t type, int ndim, int64_t rows, int64_t cols,
                          const void *data)
{
  const hsize_t dims[2] = {(hsize_t)rows, (hsize_t)cols};
  hid_t space = H5Screate_simple(ndim, dims, NULL), dataset;

  PetscFunctionBegin;
  TrsCallHDF5(dataset = H5Dcreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  TrsCallHDF5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
  TrsCallHDF5(H5Dclose(dataset));
  TrsCallHDF5(H5Sclose(space));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* n < 0 writes a scalar. */
static PetscErrorCode put_attribute(hid_t where, const char *name, hid_t type, int n, const void *data)
{
  const hsize_t count = (hsize_t)n;
  hid_t space = n < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, NULL), attribute;

  PetscFunctionBegin;
  TrsCallHDF5(attribute = H5Acreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT));
  TrsCallHDF5(H5Awrite(attribute, type, data));
  TrsCallHDF5(H5Aclose(attribute));
  TrsCallHDF5(H5Sclose(space));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode put_attributes(const made *m)
{
  static const char format[] = "trshard-dataset";
  const int64_t version = 1;
  hid_t text = H5Tcopy(H5T_C_S1);

  PetscFunctionBegin;
  TrsCallHDF5(H5Tset_size(text, sizeof(format)));
  PetscCall(put_attribute(m->file, "format", text, -1, format));
  TrsCallHDF5(H5Tset_size(text, sizeof(m->name[0])));
  PetscCall(put_attribute(m->sparse, "features", text, m->features, m->name));
  TrsCallHDF5(H5Tclose(text));
  PetscCall(put_attribute(m->file, "version", H5T_NATIVE_INT64, -1, &version));
  PetscCall(put_attribute(m->file, "num_samples", H5T_NATIVE_INT64, -1, &m->samples));
  PetscCall(put_attribute(m->sparse, "num_embeddings", H5T_NATIVE_INT64, m->features, m->rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode put_ids(const made *m)
{
  int32_t *values, *lengths;
  int64_t *offsets, n = 0;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(m->samples * m->ids, sizeof(*values), &values));
  PetscCall(TrsAlloc(m->samples * m->features, sizeof(*lengths), &lengths));
  PetscCall(TrsAlloc(m->samples + 1, sizeof(*offsets), &offsets));
  for (int64_t i = 0; i < m->samples; i++) {
    offsets[i] = n;
    for (int f = 0; f < m->features; f++) {
      lengths[i * m->features + f] = (int32_t)m->pooling[f];
      for (int64_t j = 0; j < m->pooling[f]; j++, n++)
        values[n] = (int32_t)((uint64_t)random_word(0, n) * (uint64_t)m->rows[f] >> 32);
    }
  }
  offsets[m->samples] = n;
  PetscCall(put(m->sparse, "lengths", H5T_NATIVE_INT32, 2, m->samples, m->features, lengths));
  PetscCall(put(m->sparse, "offsets", H5T_NATIVE_INT64, 1, m->samples + 1, 1, offsets));
  PetscCall(put(m->sparse, "values", H5T_NATIVE_INT32, 1, n, 1, values));
  PetscCall(TrsFree(&values));
  PetscCall(TrsFree(&lengths));
  PetscCall(TrsFree(&offsets));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write the labels and the dense features. */
static PetscErrorCode put_numbers(const made *m)
{
  float *number;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(m->samples * PetscMax(1, m->dense), sizeof(*number), &number));
  for (int64_t i = 0; i < m->samples; i++) number[i] = (float)(random_word(1, i) & 1);
  PetscCall(put(m->file, "labels", H5T_NATIVE_FLOAT, 1, m->samples, 1, number));
  for (int64_t i = 0; i < m->samples * m->dense; i++) number[i] = TrsUniform24(random_word(2, i));
  if (m->dense) PetscCall(put(m->file, "dense", H5T_NATIVE_FLOAT, 2, m->samples, m->dense, number));
  PetscCall(TrsFree(&number));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Get one number for each feature, from a list that has one entry for each feature or one entry for
  all.
*/
static PetscErrorCode get_list(TrsOptions options, const char *name, int features, int64_t *number)
{
  const int64_t *list = NULL;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInts(options, name, &n, &list, NULL));
  PetscCheck(n == 1 || n == features, PETSC_COMM_SELF, TRS_ERR_OPTION, "%s has %d entries for %d features",
             name, n, features);
  for (int f = 0; f < features; f++) number[f] = list[n > 1 ? f : 0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode get_options(TrsOptions options, made *m)
{
  const char *const *names = NULL;
  int64_t features;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-output", &m->path, NULL));
  PetscCheck(m->path, PETSC_COMM_SELF, TRS_ERR_OPTION, "-output is missing");
  PetscCall(TrsOptionsGetInt(options, "-samples", &m->samples, NULL));
  PetscCall(TrsOptionsGetInt(options, "-dense", &m->dense, NULL));
  PetscCall(TrsOptionsGetInt(options, "-features", &features, NULL));
  PetscCall(TrsOptionsGetStrings(options, "-names", &n, &names, NULL));
  m->features = names ? n : (int)features;
  PetscCall(PetscCalloc3((size_t)m->features, &m->name, (size_t)m->features, &m->rows, (size_t)m->features,
                         &m->pooling));
  for (int f = 0; f < m->features; f++) {
    if (names)
      snprintf(m->name[f], sizeof(m->name[f]), "%s", names[f]);
    else
      snprintf(m->name[f], sizeof(m->name[f]), "cat_%d", f);
  }
  PetscCall(get_list(options, "-rows", m->features, m->rows));
  PetscCall(get_list(options, "-pooling", m->features, m->pooling));
  for (int f = 0; f < m->features; f++) m->ids += m->pooling[f];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode make_data(int argc, char **argv)
{
  static const TrsOptionGroup *const groups[] = {&bench_options};
  TrsOptions options;
  made m = {0};

  PetscFunctionBegin;
  PetscCall(TrsOptionsCreate(PETSC_COMM_WORLD, argc, argv, groups, 1, &options));
  PetscCall(get_options(options, &m));
  TrsCallHDF5(m.file = H5Fcreate(m.path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  TrsCallHDF5(m.sparse = H5Gcreate2(m.file, "sparse", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  PetscCall(put_attributes(&m));
  PetscCall(put_numbers(&m));
  PetscCall(put_ids(&m));
  TrsCallHDF5(H5Gclose(m.sparse));
  TrsCallHDF5(H5Fclose(m.file));
  printf("%s: %lld samples, %d features, %lld ids a sample\n", m.path, (long long)m.samples, m.features,
         (long long)m.ids);
  PetscCall(PetscFree3(m.name, m.rows, m.pooling));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, make_data);
}
