/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Compares with golden data of FBGEMM's bounds check, which goes through a dataset file and the
  reader (src/RULES.md, rule A24): repaired ids, the number of warnings, and the error of the mode
  fatal. FBGEMM also repairs damaged offsets; here a dataset with such offsets is refused in every
  mode.
*/
#include "data/pretend_device.h"
#include "golden_h5.h"
#include "io/make_dataset.h"

#include <inttypes.h>
#include <unistd.h>

enum { MOST_BAGS = 64 };

static char path[4096];

static TrsBoundsCheckMode mode_of(hid_t group)
{
  static const char *const names[] = {"fatal", "warning", "ignore", "none"};
  char mode[32];

  golden_string(group, "mode", mode, sizeof(mode));
  for (int i = TRS_BOUNDS_FATAL; i <= TRS_BOUNDS_NONE; i++)
    if (strcmp(mode, names[i]) == 0) return (TrsBoundsCheckMode)i;
  fail_msg("unknown mode %s", mode);
  return TRS_BOUNDS_NONE;
}

/* Find the number of rows of each bag's table. Features have different batch sizes or the same. */
static void rows_of_bags(hid_t group, int n_bags, int64_t *of_bag)
{
  int64_t n_tables = 0, *rows = golden_int64(group, "in/rows", &n_tables), *begin = NULL;

  if (golden_has(group, "in/B_offsets")) begin = golden_int64(group, "in/B_offsets", NULL);
  for (int64_t t = 0; t < n_tables; t++) {
    const int64_t first = begin ? begin[t] : t * (n_bags / n_tables),
                  end = begin ? begin[t + 1] : (t + 1) * (n_bags / n_tables);

    for (int64_t b = first; b < end; b++) of_bag[b] = rows[t];
  }
  free(rows);
  free(begin);
}

/* Make a dataset with one sample, in which each bag is a separate feature. */
static void make_file(int n_bags, const int64_t *offsets, int64_t n_values, const int64_t *values)
{
  const char *const format = "trshard-dataset", *features[MOST_BAGS];
  const int64_t one = 1, ends[2] = {0, offsets[n_bags]};
  int64_t num_embeddings[MOST_BAGS], lengths[MOST_BAGS];
  const float label = 1.0f;
  char name[MOST_BAGS][16];
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), sparse;

  assert_true(file >= 0);
  for (int b = 0; b < n_bags; b++) {
    snprintf(name[b], sizeof(name[b]), "bag%d", b);
    features[b] = name[b];
    num_embeddings[b] = 100;
    lengths[b] = offsets[b + 1] - offsets[b];
  }
  sparse = H5Gcreate2(file, "sparse", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  made_put_text(file, "format", 0, &format, 0);
  made_put_int(file, "version", 0, &one);
  made_put_int(file, "num_samples", 0, &one);
  made_put_text(sparse, "features", n_bags, features, 0);
  made_put_int(sparse, "num_embeddings", n_bags, num_embeddings);
  H5Gclose(sparse);
  made_put(file, "labels", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, 1, 1, MADE_PLAIN, &label);
  made_put(file, "sparse/lengths", H5T_STD_I32LE, H5T_NATIVE_INT64, 2, 1, (hsize_t)n_bags, MADE_PLAIN,
           lengths);
  made_put(file, "sparse/offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, 2, 1, MADE_PLAIN, ends);
  made_put(file, "sparse/values", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, (hsize_t)n_values, 1, MADE_PLAIN,
           values);
  assert_true(H5Fclose(file) >= 0);
}

/* Read the only batch of the file and compare it with the golden result. */
static PetscErrorCode read_file(TrsReader reader, TrsDataset dataset, hid_t group, int n_bags,
                                const TrsBoundsCheckMode *mode, const int64_t *rows)
{
  int64_t *warnings = golden_int64(group, "out/warning", NULL);
  int keys[MOST_BAGS];
  TrsBatch *batch;

  PetscFunctionBegin;
  for (int b = 0; b < n_bags; b++) keys[b] = b;
  PetscCall(TrsReaderSetDataset(reader, dataset));
  PetscCall(TrsReaderSetFeatures(reader, n_bags, keys, rows, mode, PETSC_FALSE));
  PetscCall(TrsReaderSetUp(reader));
  PetscCall(next_batch(reader, &batch));
  assert_non_null(batch);
  if (golden_has(group, "out/indices")) {
    int64_t n = 0, *values = golden_int64(group, "out/indices", &n);

    assert_int_equal(batch->kjt.jagged.n_values, n);
    assert_memory_equal(batch->kjt.jagged.values, values, (size_t)n * sizeof(*values));
    free(values);
  }
  assert_int_equal(batch->bad_ids, mode[0] == TRS_BOUNDS_WARNING ? warnings[0] : 0);
  free(warnings);
  PetscCall(TrsReaderReturn(reader, &batch));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if the offsets describe contiguous bags that contain all ids. */
static PetscBool are_sound(int n_bags, const int64_t *offsets, int64_t n_values)
{
  PetscBool sound = (PetscBool)(offsets[0] == 0 && offsets[n_bags] == n_values);

  for (int b = 0; b < n_bags; b++) sound = (PetscBool)(sound && offsets[b] <= offsets[b + 1]);
  return sound;
}

static void one_group(hid_t group, const char *name, void *context)
{
  const TrsOptionGroup *groups[1] = {&trs_reader_options};
  char *argv[] = {(char[]){"test"}};
  int64_t n_offsets = 0, n_values = 0, rows[MOST_BAGS];
  int64_t *offsets = golden_int64(group, "in/offsets", &n_offsets),
          *values = golden_int64(group, "in/indices", &n_values),
          *error = golden_int64(group, "out/error", NULL);
  const int n_bags = (int)n_offsets - 1;
  const PetscBool refused = (PetscBool)(error[0] > 0 || !are_sound(n_bags, offsets, n_values));
  TrsBoundsCheckMode mode[MOST_BAGS];
  TrsDataset dataset = NULL;
  TrsReader reader = NULL;
  TrsOptions options;
  PetscErrorCode code;

  (void)context;
  assert_true(n_bags <= MOST_BAGS);
  rows_of_bags(group, n_bags, rows);
  for (int b = 0; b < n_bags; b++) mode[b] = mode_of(group);
  make_file(n_bags, offsets, n_values, values);
  assert_petsc_ok(TrsOptionsCreate(MPI_COMM_WORLD, 1, argv, groups, 1, &options));
  assert_petsc_ok(TrsReaderCreate(MPI_COMM_WORLD, &reader));
  pretend_to(reader);
  assert_petsc_ok(TrsReaderSetFromOptions(reader, options, PETSC_FALSE));
  TrsErrorClear();
  code = TrsDatasetOpen(MPI_COMM_WORLD, 1, (const char *const[]){path}, &dataset);
  if (code == PETSC_SUCCESS) code = read_file(reader, dataset, group, n_bags, mode, rows);
  if (code != (refused ? TRS_ERR_DATA : PETSC_SUCCESS))
    fail_msg("%s: error %d, expected %s: %s", name, (int)code, refused ? "TRS_ERR_DATA" : "none",
             TrsErrorMessage());
  TrsErrorClear();
  assert_petsc_ok(TrsReaderDestroy(&reader));
  assert_petsc_ok(TrsDatasetClose(&dataset));
  assert_petsc_ok(TrsOptionsDestroy(&options));
  free(offsets);
  free(values);
  free(error);
}

static void test_golden(void **state)
{
  hid_t file = golden_open("units_bounds.h5");

  (void)state;
  snprintf(path, sizeof(path), "%s/trs_bounds_%d.h5", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
           (int)getpid());
  golden_for_each_group(file, one_group, NULL);
  golden_close(file);
  assert_int_equal(unlink(path), 0);
}

TRS_TEST_MAIN(cmocka_unit_test(test_golden), cmocka_unit_test(pretend), cmocka_unit_test(test_golden),
              cmocka_unit_test(pretend_end))
