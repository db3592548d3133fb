/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Measures the reader without training: it makes batches of a dataset at full speed. The cost is
  compared with copying the same bytes.

    bench_reader -data_train FILE [-batch_size 2048] [-epochs 1] [-data_shuffle]
                 [-data_read_ahead 2] [-id_maps none,hash] [-rounds 1] [-for_device]

  With -for_device the reader makes batches for a GPU, which assembles them itself.

  Prints one line for each id map: the file, samples/s by wall clock, CPU ns per sample (more
  reliable on a busy machine), and the bytes of a sample in a batch. The line also has the CPU time
  of copying these bytes, in ns per sample and as a share of the reader's CPU time, and the CPU time
  of only reading the file, in ns per sample. The first pass loads the file into the page cache and
  is not counted. With several rounds, the maps take turns, and medians are printed. The line of
  each map after the first ends with two ratios: its samples/s to those of the first map, and the
  first map's CPU time to its own.
*/
#include "bench.h"
#include "core/buffer.h"
#include "data/reader.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const TrsOptionSpec bench_options[] = {
    {"-id_maps", TRS_OPTION_ENUMS, "none", NULL, "none,modulo,hash", NULL, "of all features"},
    {"-for_device", TRS_OPTION_BOOL, "false", NULL, NULL, NULL, "leave the batches to a device"},
    {"-rounds", TRS_OPTION_INT, "1", "[1,1000]", NULL, NULL, "passes with each map"},
};
static const TrsOptionGroup bench_group = TRS_OPTION_GROUP("Bench", bench_options);

/* The measured costs of some passes. */
typedef struct {
  int64_t samples, bytes;
  double wall_s, cpu_s;
} cost;

/* Create a reader of all features, as in training. */
static PetscErrorCode create_reader(TrsOptions options, TrsDataset dataset, TrsIdMapKind kind,
                                    TrsReader *reader)
{
  const TrsDatasetInfo *info;
  const TrsDeviceOps *cpu;
  TrsBoundsCheckMode *mode;
  PetscBool for_device;
  TrsDeviceOps device;
  TrsIdMapRule *map;
  int64_t *rows;
  int *keys;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  PetscCall(PetscMalloc4(info->n_features, &keys, info->n_features, &rows, info->n_features, &mode,
                         info->n_features, &map));
  for (int f = 0; f < info->n_features; f++) {
    keys[f] = f;
    rows[f] = info->num_embeddings[f];
    mode[f] = TRS_BOUNDS_WARNING;
    map[f] = (TrsIdMapRule){.kind = kind, .rows = rows[f]};
  }
  PetscCall(TrsReaderCreate(PETSC_COMM_WORLD, reader));
  PetscCall(TrsReaderSetFromOptions(*reader, options, PETSC_TRUE));
  PetscCall(TrsDeviceFind("cpu", &cpu));
  device = *cpu;
  PetscCall(TrsOptionsGetBool(options, "-for_device", &for_device, NULL));
  device.host_memory = (PetscBool)!for_device;
  PetscCall(TrsReaderSetDevice(*reader, &device));
  PetscCall(TrsReaderSetDataset(*reader, dataset));
  PetscCall(TrsReaderSetFeatures(*reader, info->n_features, keys, rows, mode, info->has_weights));
  PetscCall(TrsReaderSetIdMaps(*reader, map));
  PetscCall(TrsReaderSetUp(*reader));
  PetscCall(PetscFree4(keys, rows, mode, map));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_all(TrsOptions options, TrsDataset dataset, TrsIdMapKind kind, cost *c)
{
  const double wall_s = bench_clock(CLOCK_MONOTONIC), cpu_s = bench_clock(CLOCK_PROCESS_CPUTIME_ID);
  const TrsDatasetInfo *info;
  TrsReader reader;
  TrsBatch *batch;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  PetscCall(create_reader(options, dataset, kind, &reader));
  *c = (cost){.samples = 0};
  PetscCall(TrsReaderNext(reader, &batch));
  while (batch) {
    const TrsJagged *ids = &batch->kjt.jagged;

    c->samples += batch->batch;
    c->bytes += batch->features ? batch->memory_bytes
                                : batch->batch * 4 * (info->num_dense + 1) + ids->n_bags * 12 +
                                      ids->n_values * (ids->weights ? 12 : 8);
    PetscCall(TrsReaderReturn(reader, &batch));
    PetscCall(TrsReaderNext(reader, &batch));
  }
  PetscCall(TrsReaderDestroy(&reader));
  c->wall_s = bench_clock(CLOCK_MONOTONIC) - wall_s;
  c->cpu_s = bench_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu_s;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The CPU seconds for copying this number of bytes, one batch at a time. */
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
    /* this store ensures that the compiler keeps every copy */
    from[done % batch_bytes] = to[batch_bytes - 1];
  }
  *cpu_s += bench_clock(CLOCK_PROCESS_CPUTIME_ID);
  PetscCall(TrsFree(&from));
  PetscCall(TrsFree(&to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The CPU seconds for reading a file once from the page cache. */
static PetscErrorCode read_once(const char *path, double *cpu_s)
{
  const size_t bytes = 1 << 17;
  const int fd = open(path, O_RDONLY);
  char *to;

  PetscFunctionBegin;
  PetscCheck(fd >= 0, PETSC_COMM_SELF, TRS_ERR_IO, "%s cannot be opened", path);
  PetscCall(TrsAlloc((int64_t)bytes, 1, &to));
  *cpu_s = -bench_clock(CLOCK_PROCESS_CPUTIME_ID);
  while (read(fd, to, bytes) > 0) continue;
  *cpu_s += bench_clock(CLOCK_PROCESS_CPUTIME_ID);
  PetscCall(TrsFree(&to));
  (void)close(fd);
  PetscFunctionReturn(PETSC_SUCCESS);
}

enum { MOST_MAPS = 3, MOST_ROUNDS = 1000 };

/* The costs of the passes with one map. The medians over the rounds are printed. */
typedef struct {
  double wall_s[MOST_ROUNDS], cpu_s[MOST_ROUNDS];
} rounds;

static PetscErrorCode print_map(const char *path, const cost *first, const cost *c, double copy_s,
                                double read_s)
{
  PetscFunctionBegin;
  PetscCall(PetscPrintf(
      PETSC_COMM_WORLD,
      "%s  %.0f samples/s  %.0f CPU ns/sample  %.0f bytes/sample  memcpy %.0f CPU ns/sample  ratio %.3f  "
      "read %.0f CPU ns/sample",
      path, (double)c->samples / c->wall_s, 1e9 * c->cpu_s / (double)c->samples,
      (double)c->bytes / (double)c->samples, 1e9 * copy_s / (double)c->samples, copy_s / c->cpu_s,
      1e9 * read_s));
  if (c != first)
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "  of the first %.3f, CPU %.3f", first->wall_s / c->wall_s,
                          first->cpu_s / c->cpu_s));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Read the dataset with every map in turn, and print the costs. */
static PetscErrorCode measure(TrsOptions options, TrsDataset dataset, const char *path)
{
  static rounds all[MOST_MAPS];
  const int *map = NULL;
  int64_t batch_size, n_rounds;
  double copy_s = 0, read_s = 0;
  cost c[MOST_MAPS];
  const TrsDatasetInfo *info;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &batch_size, NULL));
  PetscCall(TrsOptionsGetInt(options, "-rounds", &n_rounds, NULL));
  PetscCall(TrsOptionsGetEnums(options, "-id_maps", &n, &map, NULL));
  for (int64_t r = -1; r < n_rounds; r++)
    for (int k = 0; k < PetscMin(n, MOST_MAPS); k++) {
      PetscCall(read_all(options, dataset, (TrsIdMapKind)map[k], &c[k]));
      all[k].wall_s[PetscMax(r, 0)] = c[k].wall_s;
      all[k].cpu_s[PetscMax(r, 0)] = c[k].cpu_s;
    }
  PetscCall(copy_all(c[0].bytes, PetscMax(c[0].bytes / PetscMax(c[0].samples / batch_size, 1), 1), &copy_s));
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  PetscCall(read_once(path, &read_s));
  read_s /= (double)(info->first_sample[1] - info->first_sample[0]);
  for (int k = 0; k < PetscMin(n, MOST_MAPS); k++) {
    c[k].wall_s = bench_median(n_rounds, all[k].wall_s);
    c[k].cpu_s = bench_median(n_rounds, all[k].cpu_s);
    PetscCall(print_map(path, &c[0], &c[k], copy_s, read_s));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(int argc, char **argv)
{
  const TrsOptionGroup *groups[] = {&trs_reader_options, &bench_group};
  const char *const *paths = NULL;
  int n_paths = 0;
  TrsOptions options;
  TrsDataset dataset;

  PetscFunctionBegin;
  PetscCall(TrsOptionsCreate(PETSC_COMM_WORLD, argc, argv, groups, 2, &options));
  PetscCall(TrsOptionsGetStrings(options, "-data_train", &n_paths, &paths, NULL));
  PetscCheck(paths, PETSC_COMM_SELF, TRS_ERR_OPTION, "-data_train is missing");
  PetscCall(TrsDatasetOpen(PETSC_COMM_WORLD, n_paths, paths, &dataset));
  PetscCall(measure(options, dataset, paths[0]));
  PetscCall(TrsDatasetClose(&dataset));
  PetscCall(TrsOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  return bench_main(argc, argv, run);
}
