/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests the batches of a reader: the file's contents in the order of the schedule, sorted by
  feature; the checks of ids and numbers; and steps without allocations in the steady state. All
  tests run for a CPU, and for a device that assembles batches.
*/
#include "core/buffer.h"
#include "data/pretend_device.h"
#include "data/shuffle.h"
#include "io/make_dataset.h"

#include <math.h>
#include <unistd.h>

static char path[4096];
static const char *const one_name[1] = {path};
static const char *const *names = one_name;
static int n_names = 1;
static const int keys[2] = {2, 0}; /* features hist and user; item is not read */
static const int64_t rows[2] = {60, 50};
static const TrsBoundsCheckMode fatal[2] = {TRS_BOUNDS_FATAL, TRS_BOUNDS_FATAL};

static void choose_path(void **state)
{
  (void)state;
  if (trs_rank() == 0) {
    snprintf(path, sizeof(path), "%s/trs_reader_%d.h5", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
             (int)getpid());
    (void)unlink(path); /* the file of a killed process with the same number */
  }
  MPI_Bcast(path, (int)sizeof(path), MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void remove_file(void **state)
{
  (void)state;
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) assert_int_equal(unlink(path), 0);
}

static void make_file(made_kind kind, void (*spoil)(hid_t file))
{
  MPI_Barrier(MPI_COMM_WORLD);
  if (trs_rank() == 0) {
    made_dataset(path, kind);
    if (spoil) {
      hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);

      spoil(file);
      assert_true(H5Fclose(file) >= 0);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

typedef struct {
  TrsOptions options;
  TrsDataset dataset;
  TrsReader reader;
} fixture;

/* text has options as on a command line, separated by blanks. */
static void open_reader(fixture *f, const char *text, PetscBool training, const TrsBoundsCheckMode *mode,
                        int64_t start)
{
  const TrsOptionGroup *groups[1] = {&trs_reader_options};
  char copy[256], *argv[32] = {(char[]){"test"}}, *save = NULL;
  int argc = 1;

  snprintf(copy, sizeof(copy), "%s", text);
  for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) argv[argc++] = word;
  assert_petsc_ok(TrsOptionsCreate(MPI_COMM_WORLD, argc, argv, groups, 1, &f->options));
  assert_petsc_ok(TrsDatasetOpen(MPI_COMM_WORLD, n_names, names, &f->dataset));
  assert_petsc_ok(TrsReaderCreate(MPI_COMM_WORLD, &f->reader));
  pretend_to(f->reader);
  assert_petsc_ok(TrsReaderSetFromOptions(f->reader, f->options, training));
  assert_petsc_ok(TrsReaderSetDataset(f->reader, f->dataset));
  assert_petsc_ok(TrsReaderSetFeatures(f->reader, 2, keys, rows, mode, PETSC_TRUE));
  assert_petsc_ok(TrsReaderSetStart(f->reader, start));
}

static void close_reader(fixture *f)
{
  assert_petsc_ok(TrsReaderDestroy(&f->reader));
  assert_petsc_ok(TrsDatasetClose(&f->dataset));
  assert_petsc_ok(TrsOptionsDestroy(&f->options));
}

/* Check that position b of the batch has this sample of the file. */
static void check_sample(const TrsBatch *batch, int64_t b, int64_t sample)
{
  const TrsJagged *jagged = &batch->kjt.jagged;

  assert_true(batch->labels[b] == made_label(sample));
  assert_true(batch->weights[b] == made_sample_weight(sample));
  for (int d = 0; d < MADE_DENSE; d++) assert_true(batch->dense[b * MADE_DENSE + d] == made_dense(sample, d));
  for (int f = 0; f < 2; f++) {
    int64_t bag = f * batch->batch + b;

    assert_int_equal(jagged->lengths[bag], made_length(sample, keys[f]));
    assert_int_equal(jagged->offsets[bag + 1] - jagged->offsets[bag], jagged->lengths[bag]);
    for (int j = 0; j < jagged->lengths[bag]; j++) {
      assert_int_equal(jagged->values[jagged->offsets[bag] + j], made_id(sample, keys[f], j));
      assert_true(jagged->weights[jagged->offsets[bag] + j] == made_weight(sample, keys[f], j));
    }
  }
}

/*
  Read to the end, and return the number of steps. If shuffle_seed is negative, samples are in the
  order of the file.
*/
static int64_t check_run(fixture *f, int64_t start, int64_t shuffle_seed)
{
  int64_t steps = 0;

  assert_petsc_ok(TrsReaderSetUp(f->reader));
  for (;; steps++) {
    TrsShuffle shuffle;
    TrsBatch *batch;
    double weight = 0.0;

    assert_petsc_ok(next_batch(f->reader, &batch));
    if (!batch) break;
    assert_int_equal(batch->step, start + steps);
    assert_int_equal(batch->kjt.batch, batch->batch);
    assert_int_equal(batch->kjt.n_features, 2);
    assert_int_equal(batch->kjt.jagged.n_bags, 2 * batch->batch);
    assert_int_equal(batch->kjt.jagged.offsets[0], 0);
    assert_int_equal(batch->kjt.jagged.offsets[2 * batch->batch], batch->kjt.jagged.n_values);
    if (shuffle_seed >= 0) TrsShuffleInit(&shuffle, (uint64_t)shuffle_seed, batch->epoch, MADE_SAMPLES);
    for (int64_t b = 0; b < batch->batch; b++) weight += (double)batch->weights[b];
    /* exact, because the weights are multiples of one half */
    assert_true(TrsWeightSumTotal(batch->weight_digits) == weight);
    for (int64_t b = 0; b < batch->batch; b++)
      check_sample(batch, b, shuffle_seed >= 0 ? TrsShuffleAt(&shuffle, batch->first + b) : batch->first + b);
    assert_petsc_ok(TrsReaderReturn(f->reader, &batch));
    assert_null(batch);
  }
  return steps;
}

/* 37 samples: if a global batch has G = 3 W samples, a pass has ceil(37 / 3W) steps. */
static void test_contents(void **state)
{
  const int64_t per_epoch = (MADE_SAMPLES + 3 * trs_size() - 1) / (3 * trs_size());

  (void)state;
  for (int kind = 0; kind < MADE_N_KINDS; kind++) {
    fixture f;

    make_file((made_kind)kind, NULL);
    open_reader(&f, "-batch_size 3 -epochs 2", PETSC_TRUE, fatal, 0);
    assert_int_equal(check_run(&f, 0, -1), 2 * per_epoch);
    close_reader(&f);
    open_reader(&f, "-batch_size 3 -steps 50 -data_shuffle -seed 5 -data_read_ahead 1", PETSC_TRUE, fatal, 0);
    assert_int_equal(check_run(&f, 0, 5), 50); /* the passes repeat */
    close_reader(&f);
    /* a batch is larger than the file, so a pass has one short batch */
    open_reader(&f, "-batch_size 100", PETSC_TRUE, fatal, 0);
    assert_int_equal(check_run(&f, 0, -1), 1);
    close_reader(&f);
    /* a resumed training */
    open_reader(&f, "-batch_size 3 -epochs 3 -data_shuffle -seed 9", PETSC_TRUE, fatal, per_epoch + 2);
    assert_int_equal(check_run(&f, per_epoch + 2, 9), 2 * per_epoch - 2);
    close_reader(&f);
    /* an evaluation makes one pass in file order */
    open_reader(&f, "-batch_size 3 -steps 2 -epochs 3 -data_shuffle", PETSC_FALSE, fatal, 0);
    assert_int_equal(check_run(&f, 0, -1), per_epoch);
    close_reader(&f);
  }
}

/*
  Like test_contents(), with three files and batches that extend over several files. If an id is too
  large, the message names the file and the row in this file.
*/
static void test_parts(void **state)
{
  static const int first[4] = {0, 5, 6, MADE_SAMPLES};
  /* one id of user is too large; it occurs first in sample 7, which is row 1 of the last file */
  static const int64_t narrow[2] = {60, 49};
  static char part[3][4200];
  const char *const parts[3] = {part[0], part[1], part[2]};
  const int64_t per_epoch = (MADE_SAMPLES + 4 * trs_size() - 1) / (4 * trs_size());
  TrsBatch *batch;
  fixture f;

  (void)state;
  make_file(MADE_PLAIN, NULL);
  for (int p = 0; p < 3; p++) {
    snprintf(part[p], sizeof(part[p]), "%s.%d", path, p);
    if (trs_rank() == 0) made_part(part[p], (made_kind)(MADE_CHUNKED + p), first[p], first[p + 1] - first[p]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  names = parts;
  n_names = 3;
  open_reader(&f, "-batch_size 4 -epochs 2", PETSC_TRUE, fatal, 0);
  assert_int_equal(check_run(&f, 0, -1), 2 * per_epoch);
  close_reader(&f);
  open_reader(&f, "-batch_size 4 -steps 30 -data_shuffle -seed 5", PETSC_TRUE, fatal, 3);
  assert_int_equal(check_run(&f, 3, 5), 27);
  close_reader(&f);
  open_reader(&f, "-batch_size 37", PETSC_TRUE, fatal, 0);
  assert_petsc_ok(TrsReaderDestroy(&f.reader));
  assert_petsc_ok(TrsReaderCreate(MPI_COMM_WORLD, &f.reader));
  pretend_to(f.reader);
  assert_petsc_ok(TrsReaderSetDataset(f.reader, f.dataset));
  assert_petsc_ok(TrsReaderSetFeatures(f.reader, 2, keys, narrow, fatal, PETSC_FALSE));
  assert_petsc_ok(TrsReaderSetUp(f.reader));
  if (trs_size() == 1) {
    assert_petsc_error(next_batch(f.reader, &batch), TRS_ERR_DATA);
    assert_non_null(
        strstr(TrsErrorMessage(), ".2: feature \"user\" of sample 1 has id 49, expected 0 to 48"));
    TrsErrorClear();
  }
  close_reader(&f);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int p = 0; p < 3 && trs_rank() == 0; p++) assert_int_equal(unlink(part[p]), 0);
  names = one_name;
  n_names = 1;
}

/* more files than HDF5 keeps open, so that threads close the files of other threads */
enum { MANY_FILES = 7 };

/*
  Any number of threads reads the same data as one thread, from every kind of file and from many
  files, beginning at any step.
*/
static void test_threads(void **state)
{
  static char part[MANY_FILES][4200];
  const char *parts[MANY_FILES];
  char text[128];
  fixture f;

  (void)state;
  for (int p = 0; p < MANY_FILES; p++) {
    const int first = MADE_SAMPLES * p / MANY_FILES, end = MADE_SAMPLES * (p + 1) / MANY_FILES;

    snprintf(part[p], sizeof(part[p]), "%s.%d", path, p);
    parts[p] = part[p];
    if (trs_rank() == 0)
      made_part(part[p], p == 3 ? MADE_PLAIN : p % 2 ? MADE_COMPRESSED : MADE_BIG_ENDIAN, first, end - first);
  }
  for (int n = 1; n <= 4; n++) {
    names = one_name;
    n_names = 1;
    make_file(n % 2 ? MADE_NARROW : MADE_CHUNKED, NULL);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
      snprintf(text, sizeof(text), "-batch_size 2 -steps 41 -reader_threads %d -seed 5%s", n,
               shuffle ? " -data_shuffle" : "");
      for (int64_t start = 0; start < 6; start += 5) {
        open_reader(&f, text, PETSC_TRUE, fatal, start);
        assert_int_equal(check_run(&f, start, shuffle ? 5 : -1), 41 - start);
        close_reader(&f);
      }
      if (n % 2) continue;
      names = parts;
      n_names = MANY_FILES;
      open_reader(&f, text, PETSC_TRUE, fatal, 3);
      assert_int_equal(check_run(&f, 3, shuffle ? 5 : -1), 38);
      close_reader(&f);
      names = one_name;
      n_names = 1;
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int p = 0; p < MANY_FILES && trs_rank() == 0; p++) assert_int_equal(unlink(part[p]), 0);
}

/*
  Make three labels with names, groups and times, stored as this kind of file stores them. Label 1
  follows the law.
*/
static void make_labels(made_kind kind)
{
  static float labels[MADE_SAMPLES][3];
  static int64_t group[MADE_SAMPLES], times[MADE_SAMPLES];
  const char *const label_names[3] = {"click", "buy", "like"};
  const hid_t whole = kind == MADE_BIG_ENDIAN ? H5T_STD_I64BE
                      : kind == MADE_NARROW   ? H5T_STD_I32LE
                                              : H5T_STD_I64LE;
  hid_t file, dataset;

  make_file(kind, NULL);
  if (trs_rank() == 0) {
    for (int i = 0; i < MADE_SAMPLES; i++) {
      labels[i][0] = 7.0f; /* this label is invalid, but it is not read */
      labels[i][1] = made_label(i);
      labels[i][2] = 1.0f - made_label(i);
      group[i] = 100 - i / 3;
      times[i] = kind == MADE_NARROW ? 1000 + i : ((int64_t)1 << 40) - i;
    }
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    made_put(file, "labels", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, MADE_SAMPLES, 3, kind, labels);
    made_put(file, "group", whole, H5T_NATIVE_INT64, 1, MADE_SAMPLES, 1, kind, group);
    made_put(file, "time", whole, H5T_NATIVE_INT64, 1, MADE_SAMPLES, 1, kind, times);
    dataset = H5Dopen2(file, "labels", H5P_DEFAULT);
    made_put_text(dataset, "names", 3, label_names, kind % 2);
    H5Dclose(dataset);
    assert_true(H5Fclose(file) >= 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Read one of several labels in any order of samples, and the groups and times of an evaluation. */
static void test_labels(void **state)
{
  (void)state;
  for (int kind = 0; kind < MADE_N_KINDS; kind++) {
    TrsBatch *batch;
    fixture f;

    make_labels((made_kind)kind);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
      open_reader(&f, shuffle ? "-batch_size 3 -data_shuffle -seed 5" : "-batch_size 3", PETSC_TRUE, fatal,
                  0);
      assert_petsc_ok(TrsReaderSetLabels(f.reader, 1, &(TrsReaderLabel){.place = 1}));
      (void)check_run(&f, 0, shuffle ? 5 : -1);
      close_reader(&f);
    }
    open_reader(&f, "-batch_size 5", PETSC_FALSE, fatal, 0);
    assert_petsc_ok(TrsReaderSetLabels(f.reader, 1, &(TrsReaderLabel){.place = 2}));
    assert_petsc_ok(TrsReaderSetUp(f.reader));
    assert_petsc_ok(next_batch(f.reader, &batch));
    for (int64_t b = 0; b < batch->batch; b++) {
      const int64_t i = batch->first + b;

      assert_true(batch->labels[b] == 1.0f - made_label(i));
      assert_int_equal(batch->group[b], 100 - i / 3);
      assert_int_equal(batch->time[b], kind == MADE_NARROW ? 1000 + i : ((int64_t)1 << 40) - i);
    }
    close_reader(&f);
  }
}

/*
  The message about an invalid number names the label's column, whichever rank finds the number and
  in whichever row.
*/
static void test_bad_label(void **state)
{
  int n_failed = 0;
  TrsBatch *batch;
  fixture f;

  (void)state;
  make_labels(MADE_PLAIN);
  open_reader(&f, "-batch_size 37", PETSC_TRUE, fatal, 0);
  assert_petsc_ok(TrsReaderSetUp(f.reader));
  TrsErrorClear();
  if (next_batch(f.reader, &batch) != PETSC_SUCCESS) {
    n_failed = 1;
    assert_non_null(strstr(TrsErrorMessage(), ", 0] is 7, expected a number in [0, 1]"));
    TrsErrorClear();
  }
  MPI_Allreduce(MPI_IN_PLACE, &n_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  assert_int_equal(n_failed, 1);
  close_reader(&f);
}

static void test_length_of_training(void **state)
{
  static const struct {
    const char *options;
    int64_t total; /* number of steps on one rank */
  } cases[] = {{"-batch_size 10", 4},
               {"-batch_size 10 -drop_last", 3},
               {"-batch_size 10 -epochs 3", 12},
               {"-batch_size 10 -epochs 3 -drop_last", 9},
               {"-batch_size 10 -steps 7", 7},
               {"-batch_size 10 -steps 7 -epochs 1", 4},
               {"-batch_size 10 -steps 7 -epochs 5", 7},
               {"-batch_size 10 -steps 0", 0}};

  (void)state;
  make_file(MADE_PLAIN, NULL);
  for (size_t i = 0; trs_size() == 1 && i < sizeof(cases) / sizeof(cases[0]); i++) {
    int64_t total, per_epoch;
    fixture f;

    open_reader(&f, cases[i].options, PETSC_TRUE, fatal, 0);
    assert_petsc_ok(TrsReaderSteps(f.reader, &total, &per_epoch));
    assert_int_equal(total, cases[i].total);
    assert_int_equal(check_run(&f, 0, -1), cases[i].total);
    close_reader(&f);
  }
}

static void test_no_batch_left(void **state)
{
  fixture f;

  (void)state;
  make_file(MADE_PLAIN, NULL);
  open_reader(&f, "-batch_size 100 -drop_last", PETSC_TRUE, fatal, 0);
  assert_petsc_error(TrsReaderSetUp(f.reader), TRS_ERR_OPTION);
  assert_non_null(strstr(TrsErrorMessage(), "-drop_last leaves no batch"));
  close_reader(&f);
}

/* Put ids 60 and -1 into hist of sample 20, and -2 into user of sample 19. */
static void spoil_ids(hid_t file)
{
  hid_t dataset = H5Dopen2(file, "sparse/values", H5P_DEFAULT);
  int64_t values[165], at = 0;

  assert_true(H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  for (int i = 0; i < 21; i++) {
    for (int f = 0; f < MADE_FEATURES; f++) {
      if (i == 21 - 1 && f == 2) {
        values[at] = 60;
        values[at + 1] = -1;
      }
      if (i == 21 - 2 && f == 0) values[at] = -2; /* sample 19 has three ids */
      at += made_length(i, f);
    }
  }
  assert_true(H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(dataset);
}

/*
  Sum over all ranks: ids that were warned about, invalid ids that remain, ids -1, and repaired ids
  by feature.
*/
static void count_ids(fixture *f, int64_t sums[4])
{
  const TrsBadIds *bad;
  TrsBatch *batch;

  memset(sums, 0, 4 * sizeof(*sums));
  assert_petsc_ok(TrsReaderSetUp(f->reader));
  for (;;) {
    assert_petsc_ok(next_batch(f->reader, &batch));
    if (!batch) break;
    sums[0] += batch->bad_ids;
    for (int64_t i = 0; i < batch->kjt.jagged.n_values; i++) {
      sums[1] += batch->kjt.jagged.values[i] == 60 || batch->kjt.jagged.values[i] == -2;
      sums[2] += batch->kjt.jagged.values[i] == -1;
    }
    if (batch->bad_ids) assert_true(batch->first_bad.sample == 19 || batch->first_bad.sample == 20);
    assert_petsc_ok(TrsReaderReturn(f->reader, &batch));
  }
  assert_petsc_ok(TrsReaderBadIds(f->reader, &bad));
  sums[3] = bad[0].n * 10 + bad[1].n;
  for (int i = 0; i < 2; i++)
    if (bad[i].n) assert_true(bad[i].first.id == 60 || bad[i].first.id == -2);
  MPI_Allreduce(MPI_IN_PLACE, sums, 4, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static void test_bounds(void **state)
{
  const TrsBoundsCheckMode mode[3][2] = {{TRS_BOUNDS_WARNING, TRS_BOUNDS_WARNING},
                                         {TRS_BOUNDS_IGNORE, TRS_BOUNDS_IGNORE},
                                         {TRS_BOUNDS_NONE, TRS_BOUNDS_NONE}};
  /* warned about, remaining, pruned (valid), repaired by feature */
  const int64_t expected[3][4] = {{2, 0, 1, 11}, {0, 0, 1, 11}, {0, 2, 1, 0}};
  int n_failed = 0;
  TrsBatch *batch;
  fixture f;

  (void)state;
  make_file(MADE_PLAIN, spoil_ids);
  for (int m = 0; m < 3; m++) {
    int64_t sums[4];

    open_reader(&f, "-batch_size 4", PETSC_TRUE, mode[m], 0);
    count_ids(&f, sums);
    for (int k = 0; k < 4; k++) assert_int_equal(sums[k], expected[m][k]);
    close_reader(&f);
  }
  open_reader(&f, "-batch_size 37", PETSC_TRUE, fatal, 0);
  assert_petsc_ok(TrsReaderSetUp(f.reader));
  TrsErrorClear();
  if (next_batch(f.reader, &batch) != PETSC_SUCCESS) {
    n_failed = 1;
    assert_non_null(strstr(TrsErrorMessage(), "feature \"user\" of sample 19 has id -2, expected 0 to 49"));
    TrsErrorClear();
  } else {
    assert_petsc_ok(TrsReaderReturn(f.reader, &batch));
  }
  MPI_Allreduce(MPI_IN_PLACE, &n_failed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  assert_true(n_failed >= 1); /* at least the rank that has sample 19 fails */
  close_reader(&f);
}

static void poke_float(hid_t file, const char *name, hsize_t row, hsize_t col, float value)
{
  const hsize_t at[2] = {row, col}, one[2] = {1, 1};
  hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset);
  hid_t memory = H5Screate_simple(H5Sget_simple_extent_ndims(space), one, NULL);

  assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, one, NULL) >= 0);
  assert_true(H5Dwrite(dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, &value) >= 0);
  H5Sclose(memory);
  H5Sclose(space);
  H5Dclose(dataset);
}

static void spoil_dense(hid_t file)
{
  poke_float(file, "dense", 20, 1, NAN);
}
static void spoil_dense_inf(hid_t file)
{
  poke_float(file, "dense", 0, 0, -INFINITY);
}
static void spoil_label(hid_t file)
{
  poke_float(file, "labels", 20, 0, 1.5f);
}
static void spoil_label_nan(hid_t file)
{
  poke_float(file, "labels", 20, 0, NAN);
}
static void spoil_weight(hid_t file)
{
  poke_float(file, "sparse/weights", 0, 0, INFINITY);
}

static void spoil_last_weight(hid_t file)
{
  poke_float(file, "sparse/weights", 164, 0, NAN);
}

static void test_numbers(void **state)
{
  static const struct {
    void (*spoil)(hid_t file);
    const char *message;
  } cases[] = {{spoil_dense, "/dense[20, 1] is nan, expected a finite number"},
               {spoil_dense_inf, "/dense[0, 0] is -inf, expected a finite number"},
               {spoil_label, "/labels[20, 0] is 1.5, expected a number in [0, 1]"},
               {spoil_label_nan, "/labels[20, 0] is nan, expected a number in [0, 1]"},
               {spoil_last_weight, "/sparse/weights holds nan in sample 36, expected finite numbers"},
               {spoil_weight, NULL}}; /* a weight of feature item; the reader skips it */

  (void)state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    for (int shuffle = 0; shuffle < 2; shuffle++) {
      const char *const options[3] = {"-batch_size 37", "-batch_size 37 -data_check warning",
                                      "-batch_size 37 -data_check none"};

      for (int check = 0; check < 3; check++) {
        char text[128];
        int64_t found[2] = {0, 0}; /* number of ranks that fail; number of invalid numbers */
        TrsBatch *batch;
        fixture f;

        snprintf(text, sizeof(text), "%s%s", options[check], shuffle ? " -data_shuffle" : "");
        make_file(MADE_PLAIN, cases[i].spoil);
        open_reader(&f, text, PETSC_TRUE, fatal, 0);
        assert_petsc_ok(TrsReaderSetUp(f.reader));
        TrsErrorClear();
        if (next_batch(f.reader, &batch) != PETSC_SUCCESS) {
          found[0] = 1;
          assert_true(cases[i].message && strstr(TrsErrorMessage(), cases[i].message));
          TrsErrorClear();
        } else {
          found[1] = batch->bad_numbers;
        }
        MPI_Allreduce(MPI_IN_PLACE, found, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        assert_int_equal(found[0], check == 0 && cases[i].message);
        assert_int_equal(found[1], check == 1 && cases[i].message);
        close_reader(&f);
      }
    }
  }
}

/* After a few passes no step allocates memory, for batches of any size. */
static void test_steady_state(void **state)
{
  int64_t before = 0, after;
  TrsBatch *batch[3];
  fixture f;

  (void)state;
  make_file(MADE_CHUNKED, NULL);
  open_reader(&f, "-batch_size 3 -steps 600 -data_shuffle", PETSC_TRUE, fatal, 0);
  assert_petsc_ok(TrsReaderSetUp(f.reader));
  for (int i = 0; i < 200; i++) {
    if (i == 160) TrsMemoryUse(&before, NULL);
    /* three batches may be in use at the same time */
    for (int k = 0; k < 3; k++) assert_petsc_ok(next_batch(f.reader, &batch[k]));
    for (int k = 2; k >= 0; k--) assert_petsc_ok(TrsReaderReturn(f.reader, &batch[k]));
  }
  TrsMemoryUse(&after, NULL);
  assert_int_equal(after, before);
  assert_petsc_ok(next_batch(f.reader, &batch[0]));
  assert_null(batch[0]);
  close_reader(&f);
}

/* If the reader is destroyed at any time, its thread ends. */
static void test_early_end(void **state)
{
  (void)state;
  make_file(MADE_PLAIN, NULL);
  for (int taken = 0; taken < 4; taken++) {
    fixture f;
    TrsBatch *batch;

    open_reader(&f, "-batch_size 1 -steps 1000", PETSC_TRUE, fatal, 0);
    assert_petsc_ok(TrsReaderSetUp(f.reader));
    for (int i = 0; i < taken; i++) assert_petsc_ok(next_batch(f.reader, &batch));
    close_reader(&f);
  }
}

/* An invalid number ends the run exactly at its batch, even if a thread found it much earlier. */
static void test_threads_fail_in_order(void **state)
{
  const int64_t step = 20 / (2 * trs_size()), rank = 20 % (2 * trs_size()) / 2;

  (void)state;
  make_file(MADE_PLAIN, spoil_dense);
  for (int round = 0; round < 24; round++) { /* in each round, threads run in another order */
    const int n = 1 + round % 4;
    char text[64];
    TrsBatch *batch;
    fixture f;

    snprintf(text, sizeof(text), "-batch_size 2 -reader_threads %d", n);
    open_reader(&f, text, PETSC_TRUE, fatal, 0);
    assert_petsc_ok(TrsReaderSetUp(f.reader));
    for (int64_t s = 0; s < step; s++) {
      assert_petsc_ok(next_batch(f.reader, &batch));
      assert_int_equal(batch->step, s);
      assert_petsc_ok(TrsReaderReturn(f.reader, &batch));
    }
    if (trs_rank() == rank) {
      assert_petsc_error(next_batch(f.reader, &batch), TRS_ERR_DATA);
      assert_non_null(strstr(TrsErrorMessage(), "/dense[20, 1] is nan, expected a finite number"));
      TrsErrorClear();
    }
    close_reader(&f);
  }
}

/*
  With several threads, no step allocates memory after a few passes, and threads can end at any
  time.
*/
static void test_threads_steady(void **state)
{
  int64_t before = 0, after;
  TrsBatch *batch;
  fixture f;

  (void)state;
  make_file(MADE_CHUNKED, NULL);
  open_reader(&f, "-batch_size 3 -steps 1200 -data_shuffle -reader_threads 3", PETSC_TRUE, fatal, 0);
  assert_petsc_ok(TrsReaderSetUp(f.reader));
  for (int i = 0; i < 1000; i++) {
    if (i == 900) TrsMemoryUse(&before, NULL);
    assert_petsc_ok(next_batch(f.reader, &batch));
    assert_petsc_ok(TrsReaderReturn(f.reader, &batch));
  }
  TrsMemoryUse(&after, NULL);
  assert_int_equal(after, before);
  close_reader(&f);
}

enum { LARGE_SAMPLES = 12000, LARGE_BAD = 9000 };

/*
  Feature 0 has i % 5 ids in sample i, feature 1 has ten. The j-th id is (11 i + 5 f + j) % 1000.
*/
static int64_t large_length(int64_t i, int f)
{
  return f ? 10 : i % 5;
}

static int64_t large_id(int64_t i, int f, int64_t j)
{
  return (11 * i + 5 * f + j) % 1000;
}

/*
  Make a dataset whose batches are read in several parts. If bad is set, samples LARGE_BAD and
  LARGE_BAD + 1000 have id 1000 in feature 1.
*/
static void make_large(hid_t ids, int bad)
{
  static int64_t offsets[LARGE_SAMPLES + 1], lengths[LARGE_SAMPLES][2], values[LARGE_SAMPLES * 14];
  static float labels[LARGE_SAMPLES];
  const char *const format = "trshard-dataset", *const features[2] = {"few", "ten"};
  const int64_t one = 1, samples = LARGE_SAMPLES, num_embeddings[2] = {1000, 1000};
  hid_t file, sparse;
  int64_t n = 0;

  for (int64_t i = 0; i < LARGE_SAMPLES; i++) {
    for (int f = 0; f < 2; f++) {
      lengths[i][f] = large_length(i, f);
      for (int64_t j = 0; j < lengths[i][f]; j++) values[n++] = large_id(i, f, j);
    }
    if (bad && (i == LARGE_BAD || i == LARGE_BAD + 1000)) values[n - 1] = 1000;
    offsets[i + 1] = n;
  }
  file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  sparse = H5Gcreate2(file, "sparse", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  made_put_text(file, "format", 0, &format, 0);
  made_put_int(file, "version", 0, &one);
  made_put_int(file, "num_samples", 0, &samples);
  made_put_text(sparse, "features", 2, features, 0);
  made_put_int(sparse, "num_embeddings", 2, num_embeddings);
  H5Gclose(sparse);
  made_put(file, "labels", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, LARGE_SAMPLES, 1, MADE_PLAIN, labels);
  made_put(file, "sparse/lengths", H5T_STD_I32LE, H5T_NATIVE_INT64, 2, LARGE_SAMPLES, 2, MADE_PLAIN, lengths);
  made_put(file, "sparse/offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, LARGE_SAMPLES + 1, 1, MADE_PLAIN,
           offsets);
  made_put(file, "sparse/values", ids, H5T_NATIVE_INT64, 1, (hsize_t)n, 1, MADE_PLAIN, values);
  assert_true(H5Fclose(file) >= 0);
}

static void open_large(fixture *f, const char *text, TrsBoundsCheckMode mode)
{
  static const int both[2] = {1, 0};
  static const int64_t thousand[2] = {1000, 1000};
  const TrsOptionGroup *groups[1] = {&trs_reader_options};
  char copy[128], *argv[16] = {(char[]){"test"}}, *save = NULL;
  int argc = 1;

  snprintf(copy, sizeof(copy), "%s", text);
  for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) argv[argc++] = word;
  assert_petsc_ok(TrsOptionsCreate(MPI_COMM_WORLD, argc, argv, groups, 1, &f->options));
  assert_petsc_ok(TrsDatasetOpen(MPI_COMM_WORLD, 1, one_name, &f->dataset));
  assert_petsc_ok(TrsReaderCreate(MPI_COMM_WORLD, &f->reader));
  pretend_to(f->reader);
  assert_petsc_ok(TrsReaderSetFromOptions(f->reader, f->options, PETSC_TRUE));
  assert_petsc_ok(TrsReaderSetDataset(f->reader, f->dataset));
  assert_petsc_ok(
      TrsReaderSetFeatures(f->reader, 2, both, thousand, (TrsBoundsCheckMode[2]){mode, mode}, PETSC_FALSE));
  assert_petsc_ok(TrsReaderSetUp(f->reader));
}

/* Check a large batch: its contents, and where it reports invalid ids. */
static void test_large_batch(void **state)
{
  (void)state;
  for (int variant = 0; trs_size() == 1 && variant < 8; variant++) {
    const int shuffle = variant & 1, bad = variant >> 1 & 1;
    char text[128];
    const TrsBadIds *repaired;
    TrsShuffle order;
    TrsBatch *batch;
    fixture f;

    make_large(variant & 4 ? H5T_STD_I32LE : H5T_STD_I64LE, bad);
    snprintf(text, sizeof(text), "-batch_size %d -seed 3%s", LARGE_SAMPLES, shuffle ? " -data_shuffle" : "");
    open_large(&f, text, TRS_BOUNDS_WARNING);
    assert_petsc_ok(next_batch(f.reader, &batch));
    TrsShuffleInit(&order, 3, 0, LARGE_SAMPLES);
    for (int64_t b = 0; b < LARGE_SAMPLES; b++)
      for (int g = 0; g < 2; g++) {
        const int64_t i = shuffle ? TrsShuffleAt(&order, b) : b, bag = g * LARGE_SAMPLES + b;
        const TrsJagged *jagged = &batch->kjt.jagged;

        assert_int_equal(jagged->lengths[bag], large_length(i, 1 - g));
        for (int64_t j = 0; j < jagged->lengths[bag]; j++)
          assert_int_equal(jagged->values[jagged->offsets[bag] + j],
                           bad && g == 0 && j == 9 && (i == LARGE_BAD || i == LARGE_BAD + 1000)
                               ? 0
                               : large_id(i, 1 - g, j));
      }
    assert_petsc_ok(TrsReaderBadIds(f.reader, &repaired));
    assert_int_equal(repaired[0].n, 2 * bad);
    assert_int_equal(repaired[1].n, 0);
    assert_int_equal(batch->bad_ids, 2 * bad);
    if (bad) assert_true(batch->first_bad.sample == LARGE_BAD && repaired[0].first.sample == LARGE_BAD);
    if (bad) assert_true(batch->first_bad.id == 1000 && batch->first_bad.key == 1);
    close_reader(&f);
    if (!bad) continue;
    open_large(&f, text, TRS_BOUNDS_FATAL);
    assert_petsc_error(next_batch(f.reader, &batch), TRS_ERR_DATA);
    assert_non_null(
        strstr(TrsErrorMessage(), "feature \"ten\" of sample 9000 has id 1000, expected 0 to 999"));
    TrsErrorClear();
    close_reader(&f);
  }
}

#define ALL_TESTS \
  cmocka_unit_test(test_contents), cmocka_unit_test(test_parts), cmocka_unit_test(test_threads), \
      cmocka_unit_test(test_labels), cmocka_unit_test(test_bad_label), \
      cmocka_unit_test(test_length_of_training), cmocka_unit_test(test_no_batch_left), \
      cmocka_unit_test(test_bounds), cmocka_unit_test(test_large_batch), cmocka_unit_test(test_numbers), \
      cmocka_unit_test(test_steady_state), cmocka_unit_test(test_early_end), \
      cmocka_unit_test(test_threads_fail_in_order), cmocka_unit_test(test_threads_steady)

TRS_TEST_MAIN(cmocka_unit_test(choose_path), ALL_TESTS, cmocka_unit_test(pretend), ALL_TESTS,
              cmocka_unit_test(pretend_end), cmocka_unit_test(remove_file))
