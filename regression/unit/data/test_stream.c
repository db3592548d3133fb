/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 2 3 4 */
/*
  Tests a reader whose dataset grows. Each batch has the next samples, wherever files begin and end.
  Until the stream ends, there are whole global batches only. Files of all kinds may follow one
  another, also files with wider ids than the first. All tests run for a CPU, and for a device that
  assembles batches.
*/
#include "data/batch_order.h"
#include "data/pretend_device.h"
#include "io/make_dataset.h"
#include "scratch_folder.h"

enum { N_PARTS = 5 };
static const int begin_of[N_PARTS + 1] = {0, 4, 5, 21, 23, MADE_SAMPLES};
static const int keys[2] = {2, 0};
static const int64_t rows[2] = {60, 50};
static const TrsBoundsCheckMode fatal[2] = {TRS_BOUNDS_FATAL, TRS_BOUNDS_FATAL};

typedef struct {
  TrsOptions options;
  TrsDataset dataset;
  TrsReader reader;
} stream;

static void part_path(int part, char *to, size_t size)
{
  snprintf(to, size, "%s/part_%d.h5", folder, part);
}

static void make_parts(void **state)
{
  (void)state;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  for (int p = 0; p < N_PARTS && trs_rank() == 0; p++) {
    char name[400];

    part_path(p, name, sizeof(name));
    made_part(name, (made_kind)((p + MADE_NARROW) % MADE_N_KINDS), begin_of[p],
              begin_of[p + 1] - begin_of[p]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void open_part(int part, TrsDataset *dataset)
{
  char name[400];
  const char *const names[1] = {name};

  part_path(part, name, sizeof(name));
  assert_petsc_ok(TrsDatasetOpen(MPI_COMM_WORLD, 1, names, dataset));
}

/* Begin at this sample, with the part that has it as the first part of the dataset. */
static void open_stream(stream *s, const char *threads, int part, int64_t step, int64_t sample)
{
  const TrsOptionGroup *groups[1] = {&trs_reader_options};
  char *argv[] = {(char[]){"test"}, (char[]){"-batch_size"}, (char[]){"2"}, (char[]){"-reader_threads"},
                  (char[8]){0}};

  snprintf(argv[4], 8, "%s", threads);
  assert_petsc_ok(TrsOptionsCreate(MPI_COMM_WORLD, 5, argv, groups, 1, &s->options));
  open_part(part, &s->dataset);
  TrsDatasetWidenIds(s->dataset);
  assert_petsc_ok(TrsReaderCreate(MPI_COMM_WORLD, &s->reader));
  pretend_to(s->reader);
  assert_petsc_ok(TrsReaderSetFromOptions(s->reader, s->options, PETSC_TRUE));
  assert_petsc_ok(TrsReaderSetDataset(s->reader, s->dataset));
  assert_petsc_ok(TrsReaderSetFeatures(s->reader, 2, keys, rows, fatal, PETSC_TRUE));
  assert_petsc_ok(TrsReaderSetStream(s->reader, step, sample, begin_of[part]));
  assert_petsc_ok(TrsReaderSetUp(s->reader));
}

static void close_stream(stream *s)
{
  assert_petsc_ok(TrsReaderDestroy(&s->reader));
  assert_petsc_ok(TrsDatasetClose(&s->dataset));
  assert_petsc_ok(TrsOptionsDestroy(&s->options));
}

static void check_batch(const TrsBatch *batch)
{
  const TrsJagged *jagged = &batch->kjt.jagged;

  for (int64_t b = 0; b < batch->batch; b++) {
    const int64_t sample = batch->first + b;

    assert_true(batch->labels[b] == made_label(sample));
    assert_true(batch->weights[b] == made_sample_weight(sample));
    for (int d = 0; d < MADE_DENSE; d++)
      assert_true(batch->dense[b * MADE_DENSE + d] == made_dense(sample, d));
    for (int f = 0; f < 2; f++) {
      const int64_t bag = f * batch->batch + b;

      assert_int_equal(jagged->lengths[bag], made_length(sample, keys[f]));
      for (int j = 0; j < jagged->lengths[bag]; j++) {
        assert_int_equal(jagged->values[jagged->offsets[bag] + j], made_id(sample, keys[f], j));
        assert_true(jagged->weights[jagged->offsets[bag] + j] == made_weight(sample, keys[f], j));
      }
    }
  }
}

/* Read all batches that the stream has so far. Returns the number of samples of all ranks. */
static int64_t read_all(stream *s, int64_t *step, int64_t *position)
{
  int64_t n = 0;
  TrsBatch *batch;

  for (;;) {
    assert_petsc_ok(next_batch(s->reader, &batch));
    if (!batch) return n;
    assert_int_equal(batch->step, *step);
    assert_int_equal(batch->epoch, 0);
    assert_int_equal(batch->position, *position);
    assert_int_equal(batch->first,
                     *position + TrsBatchOrderShare(batch->global_batch, trs_size(), trs_rank()));
    check_batch(batch);
    n += batch->global_batch;
    *position += batch->global_batch;
    ++*step;
    assert_petsc_ok(TrsReaderReturn(s->reader, &batch));
  }
}

static void check_from(const char *threads, int part, int64_t sample)
{
  const int64_t G = 2 * trs_size();
  int64_t step = 7, position = sample, known;
  stream s;

  open_stream(&s, threads, part, step, sample);
  for (int p = part;; p++) {
    TrsDataset more;

    known = begin_of[p + 1];
    (void)read_all(&s, &step, &position);
    assert_int_equal(position, sample + (known - sample) / G * G);
    assert_int_equal(read_all(&s, &step, &position), 0);
    if (p == N_PARTS - 1) break;
    open_part(p + 1, &more);
    assert_petsc_ok(TrsReaderAppend(s.reader, &more));
    assert_null(more);
  }
  assert_petsc_ok(TrsReaderEndStream(s.reader));
  assert_int_equal(read_all(&s, &step, &position), (known - sample) % G);
  assert_int_equal(position, MADE_SAMPLES);
  assert_int_equal(read_all(&s, &step, &position), 0);
  close_stream(&s);
}

static void test_growing(void **state)
{
  static const char *const threads[] = {"1", "2", "3"};

  (void)state;
  for (int t = 0; t < 3; t++)
    for (int part = 0; part < 3; part++) {
      check_from(threads[t], part, begin_of[part]);
      check_from(threads[t], part, begin_of[part + 1] - 1);
      check_from(threads[t], part, begin_of[part + 1]); /* no sample of the part is left */
    }
}

/* Files are appended while the reader's threads read, and the reader ends while they wait. */
static void test_appended_early(void **state)
{
  int64_t step = 0, position = 0;
  stream s;

  (void)state;
  open_stream(&s, "3", 0, 0, 0);
  for (int p = 1; p < N_PARTS; p++) {
    TrsDataset more;

    open_part(p, &more);
    assert_petsc_ok(TrsReaderAppend(s.reader, &more));
    if (p == 3) (void)read_all(&s, &step, &position);
  }
  (void)read_all(&s, &step, &position);
  assert_int_equal(position, MADE_SAMPLES / (2 * trs_size()) * 2 * trs_size());
  close_stream(&s);
}

/* A file that does not go together with the others is refused, and the stream goes on. */
static void test_refused(void **state)
{
  int64_t step = 0, position = 0;
  TrsDataset other;
  stream s;

  (void)state;
  open_stream(&s, "2", 0, 0, 0);
  if (trs_rank() == 0) {
    hid_t file;

    made_part(path, MADE_PLAIN, 4, 8);
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Ldelete(file, "weights", H5P_DEFAULT) >= 0 && H5Fclose(file) >= 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  assert_petsc_ok(TrsDatasetOpen(MPI_COMM_WORLD, 1, (const char *const[]){path}, &other));
  assert_petsc_error(TrsReaderAppend(s.reader, &other), TRS_ERR_DATA);
  assert_non_null(strstr(TrsErrorMessage(), "files of one dataset must go together"));
  TrsErrorClear();
  assert_petsc_ok(TrsDatasetClose(&other));
  open_part(1, &other);
  assert_petsc_ok(TrsReaderAppend(s.reader, &other));
  assert_petsc_ok(TrsReaderEndStream(s.reader));
  assert_int_equal(read_all(&s, &step, &position), 5);
  close_stream(&s);
}

/* A reader of a part of a dataset has the part's samples only, counted from 0. */
static void test_part(void **state)
{
  enum { FIRST = 3, N = 7 };
  const TrsOptionGroup *groups[1] = {&trs_reader_options};
  char *argv[] = {(char[]){"test"}, (char[]){"-batch_size"}, (char[]){"2"}};
  TrsBatch *batch;
  int64_t n = 0;
  stream s;

  (void)state;
  assert_petsc_ok(TrsOptionsCreate(MPI_COMM_WORLD, 3, argv, groups, 1, &s.options));
  open_part(2, &s.dataset);
  assert_petsc_ok(TrsReaderCreate(MPI_COMM_WORLD, &s.reader));
  pretend_to(s.reader);
  assert_petsc_ok(TrsReaderSetFromOptions(s.reader, s.options, PETSC_FALSE));
  assert_petsc_ok(TrsReaderSetDataset(s.reader, s.dataset));
  assert_petsc_ok(TrsReaderSetFeatures(s.reader, 2, keys, rows, fatal, PETSC_TRUE));
  assert_petsc_ok(TrsReaderSetPart(s.reader, FIRST, N));
  assert_petsc_ok(TrsReaderSetUp(s.reader));
  for (;;) {
    assert_petsc_ok(next_batch(s.reader, &batch));
    if (!batch) break;
    assert_int_equal(batch->position, n);
    for (int64_t b = 0; b < batch->batch; b++)
      assert_true(batch->labels[b] == made_label(begin_of[2] + FIRST + batch->first + b));
    n += batch->global_batch;
    assert_petsc_ok(TrsReaderReturn(s.reader, &batch));
  }
  assert_int_equal(n, N);
  close_stream(&s);
}

#define ALL_TESTS \
  cmocka_unit_test(test_growing), cmocka_unit_test(test_appended_early), cmocka_unit_test(test_refused), \
      cmocka_unit_test(test_part)

TRS_TEST_MAIN_IN_FOLDER(cmocka_unit_test(make_parts), ALL_TESTS, cmocka_unit_test(pretend), ALL_TESTS,
                        cmocka_unit_test(pretend_end))
