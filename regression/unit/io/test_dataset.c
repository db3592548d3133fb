/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 3 */
/*
  Tests datasets. A file gives the same data for every way to store it. Every invalid file is
  refused, with a message about the error and its position.
*/
#include "io/dataset.h"
#include "make_dataset.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[4096];
static const char *const paths[1] = {path};

static void choose_path(void **state)
{
  (void)state;
  made_choose_path("trs_dataset", path);
}

static void remove_file(void **state)
{
  (void)state;
  made_remove(path);
}

static int64_t value_at(const TrsDatasetInfo *info, const void *values, int64_t i)
{
  return info->value_bytes == 4 ? ((const int32_t *)values)[i] : ((const int64_t *)values)[i];
}

/*
  Runs that are close to each other or far from each other give the same rows as one run over all of
  them.
*/
static void check_runs(TrsDataset dataset)
{
  static const TrsRowRun run[] = {{0, 1}, {2, 3}, {6, 1}, {MADE_SAMPLES - 2, 2}};
  enum { N_RUNS = sizeof(run) / sizeof(run[0]) };
  float dense[MADE_SAMPLES * MADE_DENSE], labels[MADE_SAMPLES], weights[MADE_SAMPLES * 9];
  int32_t lengths[MADE_SAMPLES * MADE_FEATURES];
  int64_t offsets[MADE_SAMPLES + N_RUNS], values[MADE_SAMPLES * 9], row = 0, at = 0;
  float of_samples[MADE_SAMPLES];
  const TrsSampleRows to = {
      .dense = dense, .labels = labels, .lengths = lengths, .offsets = offsets, .weights = of_samples};
  TrsFault fault = {PETSC_SUCCESS, ""};
  const TrsDatasetInfo *info;
  TrsRowRun of_values[N_RUNS];

  assert_petsc_ok(TrsDatasetGetInfo(dataset, &info));
  assert_int_equal(TrsDatasetReadSamples(dataset, N_RUNS, run, &to, &fault), PETSC_SUCCESS);
  for (int r = 0; r < N_RUNS; row += run[r++].n + 1)
    of_values[r] = (TrsRowRun){offsets[row], offsets[row + run[r].n] - offsets[row]};
  assert_int_equal(TrsDatasetReadValues(dataset, N_RUNS, of_values, values, weights, &fault), PETSC_SUCCESS);
  row = 0;
  for (int r = 0; r < N_RUNS; r++) {
    for (int64_t i = run[r].first; i < run[r].first + run[r].n; i++, row++) {
      assert_true(labels[row] == made_label(i));
      assert_true(of_samples[row] == made_sample_weight(i));
      assert_true(dense[row * MADE_DENSE] == made_dense(i, 0));
      for (int f = 0; f < MADE_FEATURES; f++) {
        assert_int_equal(lengths[row * MADE_FEATURES + f], made_length(i, f));
        for (int j = 0; j < made_length(i, f); j++, at++) {
          assert_int_equal(value_at(info, values, at), made_id(i, f, j));
          assert_true(weights[at] == made_weight(i, f, j));
        }
      }
    }
  }
}

/*
  Test offsets that decrease, in a file whose lengths are too large to be checked when it is opened.
  Two runs in one call give the same values as two calls.
*/
static void check_runs_backwards(TrsDataset dataset)
{
  static const TrsRowRun run[] = {{5, 3}, {0, 2}};
  int64_t together[5] = {0}, apart[5] = {0};
  float weights_together[5], weights_apart[5];
  TrsFault fault = {PETSC_SUCCESS, ""};
  const TrsDatasetInfo *info;

  assert_petsc_ok(TrsDatasetGetInfo(dataset, &info));
  assert_int_equal(TrsDatasetReadValues(dataset, 2, run, together, weights_together, &fault), PETSC_SUCCESS);
  assert_int_equal(TrsDatasetReadValues(dataset, 1, &run[0], apart, weights_apart, &fault), PETSC_SUCCESS);
  assert_int_equal(TrsDatasetReadValues(dataset, 1, &run[1], (char *)apart + run[0].n * info->value_bytes,
                                        weights_apart + run[0].n, &fault),
                   PETSC_SUCCESS);
  assert_memory_equal(together, apart, sizeof(apart));
  assert_memory_equal(weights_together, weights_apart, sizeof(weights_apart));
}

static void check_samples(TrsDataset dataset, int64_t first, int64_t n)
{
  float dense[MADE_SAMPLES * MADE_DENSE], labels[MADE_SAMPLES], weights[MADE_SAMPLES * 9];
  int32_t lengths[MADE_SAMPLES * MADE_FEATURES];
  int64_t offsets[MADE_SAMPLES + 1], values[MADE_SAMPLES * 9], at = 0;
  float of_samples[MADE_SAMPLES];
  const TrsSampleRows to = {
      .dense = dense, .labels = labels, .lengths = lengths, .offsets = offsets, .weights = of_samples};
  const TrsDatasetInfo *info;
  TrsFault fault = {PETSC_SUCCESS, ""};
  TrsRowRun run = {first, n};

  assert_petsc_ok(TrsDatasetGetInfo(dataset, &info));
  assert_int_equal(TrsDatasetReadSamples(dataset, 1, &run, &to, &fault), PETSC_SUCCESS);
  run = (TrsRowRun){offsets[0], offsets[n] - offsets[0]};
  assert_int_equal(TrsDatasetReadValues(dataset, 1, &run, values, weights, &fault), PETSC_SUCCESS);
  for (int64_t i = 0; i < n; i++) {
    assert_true(labels[i] == made_label(first + i));
    assert_true(of_samples[i] == made_sample_weight(first + i));
    for (int d = 0; d < MADE_DENSE; d++) assert_true(dense[i * MADE_DENSE + d] == made_dense(first + i, d));
    assert_int_equal(offsets[i] - offsets[0], at);
    for (int f = 0; f < MADE_FEATURES; f++) {
      assert_int_equal(lengths[i * MADE_FEATURES + f], made_length(first + i, f));
      for (int j = 0; j < made_length(first + i, f); j++, at++) {
        assert_int_equal(value_at(info, values, at), made_id(first + i, f, j));
        assert_true(weights[at] == made_weight(first + i, f, j));
      }
    }
  }
}

static void test_kinds(void **state)
{
  (void)state;
  for (int kind = 0; kind < MADE_N_KINDS; kind++) {
    const TrsDatasetInfo *info;
    TrsDataset dataset;

    if (trs_rank() == 0) made_dataset(path, (made_kind)kind);
    MPI_Barrier(MPI_COMM_WORLD);
    assert_petsc_ok(TrsDatasetOpen(MPI_COMM_WORLD, 1, paths, &dataset));
    assert_petsc_ok(TrsDatasetGetInfo(dataset, &info));
    assert_int_equal(info->num_samples, MADE_SAMPLES);
    assert_int_equal(info->num_dense, MADE_DENSE);
    assert_int_equal(info->n_features, MADE_FEATURES);
    assert_string_equal(info->features[2], "hist");
    assert_int_equal(info->num_embeddings[2], 60);
    assert_true(info->has_weights && info->has_labels && info->has_sample_weights);
    assert_close(info->mean_lengths[0], 54.0 / 37, 0, 1e-15); /* 9 times 0+1+2+3 ids, and once 0 */
    check_samples(dataset, 0, MADE_SAMPLES);
    check_samples(dataset, 5, 13);
    check_samples(dataset, MADE_SAMPLES - 1, 1);
    check_samples(dataset, 3, 0);
    check_runs(dataset);
    check_runs_backwards(dataset);
    assert_petsc_ok(TrsDatasetClose(&dataset));
    assert_null(dataset);
    /* wait until no rank has the file open, because it is now written again */
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/* --- invalid files: each is a valid file with one change --- */

static const int64_t minus_one = -1, zero = 0, two = 2;

static void no_format(hid_t file)
{
  H5Adelete(file, "format");
}
static void other_format(hid_t file)
{
  const char *const text = "trshard-checkpoint";
  made_put_text(file, "format", 0, &text, 1);
}
static void format_is_a_number(hid_t file)
{
  made_put_int(file, "format", 0, &two);
}
static void newer_version(hid_t file)
{
  made_put_int(file, "version", 0, &two);
}
static void no_samples(hid_t file)
{
  made_put_int(file, "num_samples", 0, &zero);
}
static void other_num_samples(hid_t file)
{
  made_put_int(file, "num_samples", 0, &two);
}
static void no_num_samples(hid_t file)
{
  H5Adelete(file, "num_samples");
}
static void no_sparse(hid_t file)
{
  H5Ldelete(file, "sparse", H5P_DEFAULT);
}
static void sparse_is_a_dataset(hid_t file)
{
  H5Ldelete(file, "sparse", H5P_DEFAULT);
  made_put(file, "sparse", H5T_STD_I32LE, H5T_NATIVE_INT32, 1, 1, 1, MADE_PLAIN, NULL);
}
static void too_few_num_embeddings(hid_t file)
{
  const int64_t values[2] = {50, 50};
  hid_t group = H5Gopen2(file, "sparse", H5P_DEFAULT);
  made_put_int(group, "num_embeddings", 2, values);
  H5Gclose(group);
}
static void zero_num_embeddings(hid_t file)
{
  const int64_t values[3] = {50, -1, 50};
  hid_t group = H5Gopen2(file, "sparse", H5P_DEFAULT);
  made_put_int(group, "num_embeddings", 3, values);
  H5Gclose(group);
}
static void put_features(hid_t file, int n, const char *a, const char *b, const char *c)
{
  const char *const names[3] = {a, b, c};
  hid_t group = H5Gopen2(file, "sparse", H5P_DEFAULT);
  made_put_text(group, "features", n, names, 1);
  H5Gclose(group);
}
static void duplicate_features(hid_t file)
{
  put_features(file, 3, "user", "item", "user");
}
static void nameless_feature(hid_t file)
{
  put_features(file, 3, "user", "", "item");
}
static void too_few_features(hid_t file)
{
  put_features(file, 2, "user", "item", NULL);
}
static void no_lengths(hid_t file)
{
  H5Ldelete(file, "sparse/lengths", H5P_DEFAULT);
}
static void no_values(hid_t file)
{
  H5Ldelete(file, "sparse/values", H5P_DEFAULT);
}
static void put_numbers(hid_t file, const char *name, hid_t type, int ndim, hsize_t rows, hsize_t cols)
{
  static const double zeros[4096];
  made_put(file, name, type, H5T_NATIVE_DOUBLE, ndim, rows, cols, MADE_PLAIN,
           H5Tget_class(type) == H5T_FLOAT ? zeros : NULL);
}
static void float_lengths(hid_t file)
{
  put_numbers(file, "sparse/lengths", H5T_IEEE_F32LE, 2, MADE_SAMPLES, MADE_FEATURES);
}
static void flat_lengths(hid_t file)
{
  static const int32_t zeros[MADE_SAMPLES * MADE_FEATURES];
  made_put(file, "sparse/lengths", H5T_STD_I32LE, H5T_NATIVE_INT32, 1, MADE_SAMPLES * MADE_FEATURES, 1,
           MADE_PLAIN, zeros);
}
static void string_labels(hid_t file)
{
  static const char text[MADE_SAMPLES * 4];
  hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, 4);
  made_put(file, "labels", type, type, 1, MADE_SAMPLES, 1, MADE_PLAIN, text);
  H5Tclose(type);
}
static void int_dense(hid_t file)
{
  static const int32_t zeros[MADE_SAMPLES * 2];
  made_put(file, "dense", H5T_STD_I32LE, H5T_NATIVE_INT32, 2, MADE_SAMPLES, 2, MADE_PLAIN, zeros);
}
static void short_labels(hid_t file)
{
  put_numbers(file, "labels", H5T_IEEE_F32LE, 1, MADE_SAMPLES - 1, 1);
}
static void long_dense(hid_t file)
{
  put_numbers(file, "dense", H5T_IEEE_F32LE, 2, MADE_SAMPLES + 1, 2);
}
static void short_weights(hid_t file)
{
  put_numbers(file, "sparse/weights", H5T_IEEE_F32LE, 1, 10, 1);
}
static void deep_dense(hid_t file)
{
  put_numbers(file, "dense", H5T_IEEE_F32LE, 1, MADE_SAMPLES, 1);
}
/* Overwrite element i of an integer dataset. */
static void poke(hid_t file, const char *name, hsize_t row, hsize_t col, int ndim, int64_t value)
{
  const hsize_t at[2] = {row, col}, one[2] = {1, 1};
  hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset),
        memory = H5Screate_simple(ndim, one, NULL);
  assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, one, NULL) >= 0);
  assert_true(H5Dwrite(dataset, H5T_NATIVE_INT64, memory, space, H5P_DEFAULT, &value) >= 0);
  H5Sclose(memory);
  H5Sclose(space);
  H5Dclose(dataset);
}
static void negative_length(hid_t file)
{
  poke(file, "sparse/lengths", 20, 1, 2, minus_one);
}
static void longer_length(hid_t file)
{
  poke(file, "sparse/lengths", 20, 1, 2, 3);
}
static void huge_length(hid_t file)
{
  poke(file, "sparse/lengths", 36, 0, 2, INT32_MAX);
}
static void first_offset(hid_t file)
{
  poke(file, "sparse/offsets", 0, 0, 1, 1);
}
static void negative_offset(hid_t file)
{
  poke(file, "sparse/offsets", 0, 0, 1, -5);
}
static void falling_offset(hid_t file)
{
  poke(file, "sparse/offsets", 10, 0, 1, 2);
}
static void last_offset(hid_t file)
{
  poke(file, "sparse/offsets", MADE_SAMPLES, 0, 1, 10000);
}
static void offset_beyond_int64(hid_t file)
{
  poke(file, "sparse/offsets", 12, 0, 1, INT64_MAX);
}
static void more_values(hid_t file)
{
  static const int64_t zeros[1000];
  made_put(file, "sparse/values", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, 1000, 1, MADE_PLAIN, zeros);
  H5Ldelete(file, "sparse/weights", H5P_DEFAULT);
}
static void soft_link(hid_t file)
{
  H5Lmove(file, "labels", file, "elsewhere", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/elsewhere", file, "labels", H5P_DEFAULT, H5P_DEFAULT);
}
static void soft_link_circle(hid_t file)
{
  H5Ldelete(file, "labels", H5P_DEFAULT);
  H5Lcreate_soft("/labels", file, "labels", H5P_DEFAULT, H5P_DEFAULT);
}
static void external_link(hid_t file)
{
  H5Ldelete(file, "sparse", H5P_DEFAULT);
  H5Lcreate_external("/etc/passwd", "/sparse", file, "sparse", H5P_DEFAULT, H5P_DEFAULT);
}
static void put_special(hid_t file, const char *name, hid_t create, hsize_t rows)
{
  hid_t space = H5Screate_simple(1, &rows, NULL), dataset;
  H5Ldelete(file, name, H5P_DEFAULT);
  dataset = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
  assert_true(dataset >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(create);
}
static void external_storage(hid_t file)
{
  hid_t create = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(create, "/etc/passwd", 0, 4 * MADE_SAMPLES);
  put_special(file, "labels", create, MADE_SAMPLES);
}
static void virtual_dataset(hid_t file)
{
  hsize_t rows = MADE_SAMPLES;
  hid_t create = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &rows, NULL);
  H5Pset_virtual(create, space, "/tmp/other.h5", "/x", space);
  H5Sclose(space);
  put_special(file, "labels", create, MADE_SAMPLES);
}
static void unknown_filter(hid_t file)
{
  const hsize_t chunk = MADE_SAMPLES;
  hid_t create = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(create, 1, &chunk);
  H5Pset_filter(create, 32015, H5Z_FLAG_OPTIONAL, 0, NULL);
  put_special(file, "labels", create, MADE_SAMPLES);
}
static void unwritten_chunks(hid_t file)
{
  const hsize_t chunk = 4;
  hid_t create = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(create, 1, &chunk);
  put_special(file, "labels", create, MADE_SAMPLES);
}
static void huge_chunk(hid_t file)
{
  const hsize_t chunk = 1 << 28;
  hid_t create = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(create, 1, &chunk);
  put_special(file, "sparse/weights", create, (hsize_t)1 << 28);
}
static void unwritten_values(hid_t file)
{
  made_put(file, "sparse/values", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, (hsize_t)1 << 50, 1, MADE_PLAIN, NULL);
}
static void overflowing_values(hid_t file)
{
  const hsize_t chunk = 1024, rows = (hsize_t)1 << 62;
  hid_t create = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(create, 1, &chunk);
  put_special(file, "sparse/values", create, rows);
}
static void compound_labels(hid_t file)
{
  hid_t type = H5Tcreate(H5T_COMPOUND, 4);
  H5Tinsert(type, "x", 0, H5T_NATIVE_INT);
  made_put(file, "labels", type, type, 1, MADE_SAMPLES, 1, MADE_PLAIN, NULL);
  H5Tclose(type);
}
static void scalar_labels(hid_t file)
{
  hid_t space = H5Screate(H5S_SCALAR), dataset;
  H5Ldelete(file, "labels", H5P_DEFAULT);
  dataset = H5Dcreate2(file, "labels", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dclose(dataset);
  H5Sclose(space);
}

static const struct {
  void (*spoil)(hid_t file);
  const char *message;
} bad_files[] = {
    {no_format, "has no attribute format"},
    {other_format, "attribute format is \"trshard-checkpoint\", expected \"trshard-dataset\""},
    {format_is_a_number, "attribute format of / is not a string"},
    {newer_version, "is version 2 of trshard-dataset, this program reads version 1"},
    {no_samples, "num_samples is 0, expected 1 to "},
    {other_num_samples, "/sparse/lengths is int32 [37, 3], expected 2 rows"},
    {no_num_samples, "has no attribute num_samples"},
    {no_sparse, "has no group /sparse"},
    {sparse_is_a_dataset, "/sparse is not a group"},
    {too_few_num_embeddings, "num_embeddings of /sparse has 2 entries, expected 3"},
    {zero_num_embeddings, "num_embeddings of feature \"item\" is -1, expected at least 1"},
    {duplicate_features, "features 0 and 2 have the same name \"user\""},
    {nameless_feature, "feature 1 has an empty name"},
    {too_few_features, "num_embeddings of /sparse has 3 entries, expected 2"},
    {no_lengths, "has no dataset /sparse/lengths"},
    {no_values, "has no dataset /sparse/values"},
    {float_lengths, "/sparse/lengths is float32 [37, 3], expected integers"},
    {flat_lengths, "/sparse/lengths is int32 [111], expected 2 dimensions"},
    {string_labels, "/labels holds strings of 4 bytes"},
    {int_dense, "/dense is int32 [37, 2], expected float32"},
    {short_labels, "/labels is float32 [36], expected 37 rows"},
    {long_dense, "/dense is float32 [38, 2], expected 37 rows"},
    {short_weights, "/sparse/weights is float32 [10], expected 165 rows"},
    {deep_dense, "/dense is float32 [37], expected 2 dimensions"},
    {negative_length, "/sparse/lengths[20, 1] is -1, expected at least 0"},
    {longer_length, "row 20 of /sparse/lengths adds up to 5, but /sparse/offsets gives it 3 ids"},
    {huge_length, "row 36 of /sparse/lengths adds up to 2147483650"},
    {first_offset, "row 0 of /sparse/lengths adds up to 3, but /sparse/offsets gives it 2 ids"},
    {negative_offset, "/sparse/offsets[1] is 3 after -5, expected not to decrease"},
    {falling_offset, "/sparse/offsets[10] is 2 after"},
    {last_offset, "/sparse/offsets[37] is 10000 after"},
    {offset_beyond_int64, "/sparse/offsets[12] is 9223372036854775807 after"},
    {more_values, "the last of /sparse/offsets is 165, but /sparse/values has 1000 entries"},
    {soft_link, "/labels is a soft link, which is not allowed in an input"},
    {soft_link_circle, "/labels is a soft link, which is not allowed in an input"},
    {external_link, "/sparse is a external link, which is not allowed in an input"},
    {external_storage, "/labels keeps its data in another file, which is not allowed in an input"},
    {virtual_dataset, "/labels is a virtual dataset, which is not allowed in an input"},
    {unknown_filter, "/labels has filter 32015; gzip, shuffle and fletcher32 are allowed"},
    {unwritten_chunks, "/labels claims 10 chunks of 16 bytes, but the file"},
    {huge_chunk, "a chunk of /sparse/weights is larger than 268435456 bytes"},
    {unwritten_values, "/sparse/values claims 9007199254740992 bytes, but the file"},
    {overflowing_values, "elements, more than any file holds"},
    {compound_labels, "/labels holds compounds of 4 bytes"},
    {scalar_labels, "/labels has 0 dimensions, expected 1 or 2"},
};

static void expect_error(PetscErrorCode code, const char *message)
{
  TrsDataset dataset;

  assert_petsc_error(TrsDatasetOpen(MPI_COMM_WORLD, 1, paths, &dataset), code);
  assert_null(dataset);
  if (!strstr(TrsErrorMessage(), message))
    print_error("found \"%s\", expected \"%s\"\n", TrsErrorMessage(), message);
  assert_non_null(strstr(TrsErrorMessage(), message));
  assert_non_null(strstr(TrsErrorMessage(), path));
  TrsErrorClear();
}

static void test_bad_files(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof(bad_files) / sizeof(bad_files[0]); i++) {
    if (trs_rank() == 0) {
      hid_t file;

      made_dataset(path, MADE_PLAIN);
      file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
      bad_files[i].spoil(file);
      assert_true(H5Fclose(file) >= 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    expect_error(TRS_ERR_DATA, bad_files[i].message);
  }
}

static void test_not_a_file(void **state)
{
  FILE *file;

  (void)state;
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) unlink(path);
  MPI_Barrier(MPI_COMM_WORLD);
  expect_error(TRS_ERR_NO_INPUT, "No such file");
  if (trs_rank() == 0) assert_int_equal(mkdir(path, 0700), 0);
  MPI_Barrier(MPI_COMM_WORLD);
  expect_error(TRS_ERR_NO_INPUT, "is a directory");
  if (trs_rank() == 0) assert_true(rmdir(path) == 0 && mkfifo(path, 0600) == 0);
  MPI_Barrier(MPI_COMM_WORLD);
  expect_error(TRS_ERR_NO_INPUT, "is not a regular file");
  if (trs_rank() == 0) {
    assert_int_equal(unlink(path), 0);
    assert_non_null(file = fopen(path, "w"));
    fclose(file);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  expect_error(TRS_ERR_DATA, "is empty (0 bytes)");
  if (trs_rank() == 0) {
    assert_non_null(file = fopen(path, "w"));
    fputs("user,item,label\n1,2,1\n", file);
    fclose(file);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  expect_error(TRS_ERR_DATA, "is not an HDF5 file");
}

/*
  A wrong size of a string in the heap of strings. HDF5 1.10 trusts the size and crashes, but only
  in a child process.
*/
static void test_damaged_string(void **state)
{
  static char bytes[1 << 20];

  (void)state;
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) {
    const uint64_t size = (uint64_t)1 << 40;
    size_t n, at = 0;
    FILE *file;

    made_dataset(path, MADE_CHUNKED); /* the file has strings of variable length */
    assert_non_null(file = fopen(path, "rb"));
    n = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    while (at + 32 < n && memcmp(bytes + at, "GCOL", 4) != 0) at++;
    assert_true(at + 32 < n);
    /* the heap's header has 16 bytes; index, count and reserved have 8 bytes */
    memcpy(bytes + at + 16 + 8, &size, sizeof(size));
    assert_non_null(file = fopen(path, "wb"));
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  expect_error(TRS_ERR_DATA, "");
}

/* A file cut off at any length is refused. */
static void test_truncated(void **state)
{
  struct stat status;
  off_t size = 0;

  (void)state;
  for (int kind = 0; kind < MADE_N_KINDS; kind++) {
    if (trs_rank() == 0) {
      made_dataset(path, (made_kind)kind);
      assert_int_equal(stat(path, &status), 0);
      size = status.st_size;
    }
    MPI_Bcast(&size, (int)sizeof(size), MPI_BYTE, 0, MPI_COMM_WORLD);
    for (off_t length = size - 1; length > 0; length -= 1 + size / 19) {
      MPI_Barrier(MPI_COMM_WORLD);
      if (trs_rank() == 0) assert_int_equal(truncate(path, length), 0);
      MPI_Barrier(MPI_COMM_WORLD);
      expect_error(TRS_ERR_DATA, length >= 8 ? "truncated" : "not an HDF5 file");
    }
  }
}

/* --- several files --- */

enum { N_PARTS = 5 };
static char part_path[N_PARTS][4200];

/*
  Write the samples of the law to five files. Each file is stored in another way, and one has a
  single sample. Samples 4, 12, 20 and so on have no id of feature 0.
*/
static void make_parts(void)
{
  static const int first[N_PARTS + 1] = {0, 12, 13, 20, 30, MADE_SAMPLES};

  MPI_Barrier(MPI_COMM_WORLD);
  for (int p = 0; p < N_PARTS; p++) {
    snprintf(part_path[p], sizeof(part_path[p]), "%s.part%d", path, p);
    if (trs_rank() == 0)
      made_part(part_path[p], (made_kind)((p + MADE_N_KINDS - 1) % MADE_N_KINDS), first[p],
                first[p + 1] - first[p]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void remove_parts(void)
{
  MPI_Barrier(MPI_COMM_WORLD);
  for (int p = 0; p < N_PARTS && trs_rank() == 0; p++) assert_int_equal(unlink(part_path[p]), 0);
}

static void check_whole(TrsDataset dataset)
{
  const TrsDatasetInfo *info;
  int64_t row;

  assert_petsc_ok(TrsDatasetGetInfo(dataset, &info));
  assert_int_equal(info->num_samples, MADE_SAMPLES);
  assert_int_equal(info->num_values, 165);
  assert_int_equal(info->value_bytes, 8); /* one file has int32 ids, and the others have int64 */
  assert_int_equal(info->n_files, N_PARTS);
  assert_close(info->mean_lengths[0], 54.0 / 37, 0, 1e-15);
  assert_string_equal(TrsDatasetLocate(info, 12, &row), part_path[1]);
  assert_int_equal(row, 0);
  assert_string_equal(TrsDatasetLocate(info, MADE_SAMPLES - 1, &row), part_path[4]);
  assert_int_equal(row, 6);
  check_samples(dataset, 0, MADE_SAMPLES);
  check_samples(dataset, 5, 13);
  check_samples(dataset, 12, 1);
  check_samples(dataset, 3, 0);
  check_runs(dataset);
  check_runs_backwards(dataset);
}

static void test_several_files(void **state)
{
  const char *const names[] = {part_path[0], part_path[1], part_path[2], part_path[3], part_path[4]};
  char pattern[4300];
  const char *const patterns[1] = {pattern};
  TrsDataset dataset;

  (void)state;
  make_parts();
  assert_petsc_ok(TrsDatasetOpen(MPI_COMM_WORLD, N_PARTS, names, &dataset));
  check_whole(dataset);
  assert_petsc_ok(TrsDatasetClose(&dataset));
  snprintf(pattern, sizeof(pattern), "%s.part[0-9]", path);
  assert_petsc_ok(TrsDatasetOpen(MPI_COMM_WORLD, 1, patterns, &dataset));
  check_whole(dataset);
  assert_petsc_ok(TrsDatasetClose(&dataset));
  snprintf(pattern, sizeof(pattern), "%s.none*", path);
  assert_petsc_error(TrsDatasetOpen(MPI_COMM_WORLD, 1, patterns, &dataset), TRS_ERR_NO_INPUT);
  assert_non_null(strstr(TrsErrorMessage(), "no file matches this pattern"));
  TrsErrorClear();
  remove_parts();
}

static void other_feature(hid_t file)
{
  const char *const names[MADE_FEATURES] = {"user", "hist", "item"};
  hid_t group = H5Gopen2(file, "sparse", H5P_DEFAULT);

  made_put_text(group, "features", MADE_FEATURES, names, 0);
  H5Gclose(group);
}

static void no_weights(hid_t file)
{
  assert_true(H5Ldelete(file, "sparse/weights", H5P_DEFAULT) >= 0);
}

static void one_dense(hid_t file)
{
  static const float zeros[7] = {0};

  made_put(file, "dense", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, 7, 1, MADE_PLAIN, zeros);
}

static void no_dense(hid_t file)
{
  assert_true(H5Ldelete(file, "dense", H5P_DEFAULT) >= 0);
}

/* If files do not belong together, the message has the names of both. */
static void test_other_files(void **state)
{
  static const struct {
    void (*spoil)(hid_t file);
    const char *message;
  } cases[] = {{other_feature, "feature 1 of /sparse is \"hist\", expected \"item\""},
               {no_weights, "has no /sparse/weights, but"},
               {one_dense, "/dense has 1 column, expected 2, as"},
               {no_dense, "has no /dense, but"}};
  const char *const names[] = {part_path[0], part_path[1], part_path[2], part_path[3], part_path[4]};

  (void)state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    TrsDataset dataset;

    make_parts();
    if (trs_rank() == 0) {
      hid_t file;

      made_part(part_path[4], MADE_PLAIN, 30, 7);
      file = H5Fopen(part_path[4], H5F_ACC_RDWR, H5P_DEFAULT);
      cases[i].spoil(file);
      assert_true(H5Fclose(file) >= 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    assert_petsc_error(TrsDatasetOpen(MPI_COMM_WORLD, N_PARTS, names, &dataset), TRS_ERR_DATA);
    if (!strstr(TrsErrorMessage(), cases[i].message)) print_error("found %s\n", TrsErrorMessage());
    assert_non_null(strstr(TrsErrorMessage(), cases[i].message));
    assert_non_null(strstr(TrsErrorMessage(), part_path[4]));
    assert_non_null(strstr(TrsErrorMessage(), part_path[0]));
    TrsErrorClear();
  }
  remove_parts();
}

TRS_TEST_MAIN(cmocka_unit_test(choose_path), cmocka_unit_test(test_kinds), cmocka_unit_test(test_bad_files),
              cmocka_unit_test(test_damaged_string), cmocka_unit_test(test_truncated),
              cmocka_unit_test(test_not_a_file), cmocka_unit_test(test_several_files),
              cmocka_unit_test(test_other_files), cmocka_unit_test(remove_file))
