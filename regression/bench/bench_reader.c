/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The reader by itself: batches of a dataset as fast as they come, beside a copy of the same bytes.

    bench_reader -data_train FILE [-batch_size 2048] [-epochs 1] [-data_shuffle] [-data_read_ahead 2] [-id_map none]

  Prints one line: the file, samples/s of the wall clock, CPU ns a sample (what counts on a busy machine), bytes a sample of a batch in memory, and the CPU
  time of copying them as a share of the reader's. The first pass, which finds the file in the page cache or brings it there, is not counted.
*/
#include "bench.h"
#include "core/buffer.h"
#include "data/reader.h"

#include <string.h>

static const TrsOptionSpec bench_options[] = {
    {"-id_map", TRS_OPTION_ENUM, "none", NULL, "none,modulo,hash", NULL, "of all features"},
};
static const TrsOptionGroup bench_group = TRS_OPTION_GROUP("Bench", bench_options);

/* What passes cost. */
typedef struct {
  int64_t samples, bytes;
  double wall_s, cpu_s;
} cost;

/* All features, as a training would have them. */
static PetscErrorCode create_reader(TrsOptions options, TrsDataset dataset, TrsReader *reader)
{
  const TrsDatasetInfo *info;
  TrsBoundsCheckMode *mode;
  TrsIdMapRule *map;
  int64_t *rows;
  int *keys, kind;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  PetscCall(TrsOptionsGetEnum(options, "-id_map", &kind, NULL));
  PetscCall(PetscMalloc4(info->n_features, &keys, info->n_features, &rows, info->n_features, &mode,
                         info->n_features, &map));
  for (int f = 0; f < info->n_features; f++) {
    keys[f] = f;
    rows[f] = info->num_embeddings[f];
    mode[f] = TRS_BOUNDS_WARNING;
    map[f] = (TrsIdMapRule){.kind = (TrsIdMapKind)kind, .rows = rows[f]};
  }
  PetscCall(TrsReaderCreate(PETSC_COMM_WORLD, reader));
  PetscCall(TrsReaderSetFromOptions(*reader, options, PETSC_TRUE));
  PetscCall(TrsReaderSetDataset(*reader, dataset));
  PetscCall(TrsReaderSetFeatures(*reader, info->n_features, keys, rows, mode, info->has_weights));
  PetscCall(TrsReaderSetIdMaps(*reader, map));
  PetscCall(TrsReaderSetUp(*reader));
  PetscCall(PetscFree4(keys, rows, mode, map));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_all(TrsOptions options, TrsDataset dataset, cost *c)
{
  const double wall_s = bench_clock(CLOCK_MONOTONIC), cpu_s = bench_clock(CLOCK_PROCESS_CPUTIME_ID);
  const TrsDatasetInfo *info;
  TrsReader reader;
  TrsBatch *batch;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  PetscCall(create_reader(options, dataset, &reader));
  *c = (cost){.samples = 0};
  PetscCall(TrsReaderNext(reader, &batch));
  while (batch) {
    const TrsJagged *ids = &batch->kjt.jagged;

    c->samples += batch->batch;
    c->bytes += batch->batch * 4 * (info->num_dense + 1) + ids->n_bags * 12 +
                ids->n_values * (ids->weights ? 12 : 8);
    PetscCall(TrsReaderReturn(reader, &batch));
    PetscCall(TrsReaderNext(reader, &batch));
  }
  PetscCall(TrsReaderDestroy(&reader));
  c->wall_s = bench_clock(CLOCK_MONOTONIC) - wall_s;
  c->cpu_s = bench_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu_s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* CPU seconds of copying so many bytes, a batch's at a time. */
static PetscErrorCode copy_all(int64_t bytes, int64_t batch_bytes, double *cpu_s)
{
  char *from, *to;

  PetscFunctionBegin;
  PetscCall(TrsAlloc(batch_bytes, 1, &from));
  PetscCall(TrsAlloc(batch_bytes, 1, &to));
  memset(from, 1, (size_t)batch_bytes);
  memset(to, 2, (size_t)batch_bytes);
  *cpu_s = -bench_clock(CLOCK_PROCESS_CPUTIME_ID);
  for (int64_t done = 0; done < bytes; done += batch_bytes) {
    memcpy(to, from, (size_t)batch_bytes);
    from[done % batch_bytes] = to[batch_bytes - 1]; /* so that no copy can be left out */
  }
  *cpu_s += bench_clock(CLOCK_PROCESS_CPUTIME_ID);
  PetscCall(TrsFree(&from));
  PetscCall(TrsFree(&to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(int argc, char **argv)
{
  const TrsOptionGroup *groups[] = {&trs_reader_options, &bench_group};
  const char *const *paths = NULL;
  int n_paths = 0;
  TrsOptions options;
  TrsDataset dataset;
  int64_t batch_size;
  double copy_s = 0;
  cost c = {.samples = 0};

  PetscFunctionBegin;
  PetscCall(TrsOptionsCreate(PETSC_COMM_WORLD, argc, argv, groups, 2, &options));
  PetscCall(TrsOptionsGetStrings(options, "-data_train", &n_paths, &paths, NULL));
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &batch_size, NULL));
  PetscCheck(paths, PETSC_COMM_SELF, TRS_ERR_OPTION, "-data_train is missing");
  PetscCall(TrsDatasetOpen(PETSC_COMM_WORLD, n_paths, paths, &dataset));
  for (int pass = 0; pass < 2; pass++) PetscCall(read_all(options, dataset, &c));
  PetscCall(copy_all(c.bytes, PetscMax(c.bytes / PetscMax(c.samples / batch_size, 1), 1), &copy_s));
  PetscCall(
      PetscPrintf(PETSC_COMM_WORLD,
                  "%s  %.0f samples/s  %.0f CPU ns/sample  %.0f bytes/sample  memcpy %.0f CPU ns/sample  "
                  "ratio %.3f\n",
                  paths[0], (double)c.samples / c.wall_s, 1e9 * c.cpu_s / (double)c.samples,
                  (double)c.bytes / (double)c.samples, 1e9 * copy_s / (double)c.samples, copy_s / c.cpu_s));
  PetscCall(TrsDatasetClose(&dataset));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, run);
}
