/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/dataset_same.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

/* Number of samples in a probe, and the largest number of ids that a probe reads. */
enum { TRS_PROBE_SAMPLES = 64, TRS_PROBE_IDS = 1 << 14, TRS_FILE_FACTS = 3 };

/*
  A fact: a number that must be equal on all ranks, and its description. Messages do not print a
  hash.
*/
typedef struct {
  /* name: the part of the file that `value` describes, or "" for the whole file */
  const char *path, *what, *name;
  PetscBool is_hash;
  int64_t value;
} TrsFact;

typedef struct {
  int n;
  TrsFact *fact;
} TrsFacts;

static void add(TrsFacts *facts, const char *path, int64_t value, const char *what, const char *name)
{
  facts->fact[facts->n++] = (TrsFact){.path = path, .what = what, .name = name, .value = value};
}

static void add_hash(TrsFacts *facts, const char *path, uint64_t value, const char *what)
{
  add(facts, path, (int64_t)value, what, "");
  facts->fact[facts->n - 1].is_hash = PETSC_TRUE;
}

/* Raise an error for the first fact that differs between this rank and rank 0. */
static PetscErrorCode compare(int rank, const TrsFacts *facts, const int64_t *theirs)
{
  char host[MPI_MAX_PROCESSOR_NAME];
  const TrsFact *fact = facts->fact;
  int length, i = 0;

  PetscFunctionBegin;
  while (i < facts->n && fact[i].value == theirs[i]) i++;
  if (i == facts->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Get_processor_name(host, &length));
  PetscCheck(!fact[i].is_hash, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: rank %d on host %s has other %s than rank 0: all hosts need the same files", fact[i].path,
             rank, host, fact[i].what);
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_DATA,
          "%s: rank %d on host %s has %" PRId64 " %s%.100s, rank 0 has %" PRId64
          ": all hosts need the same files",
          fact[i].path, rank, host, fact[i].value, fact[i].what, fact[i].name, theirs[i]);
}

/*
  Compare the facts of all ranks, and free them. Every rank must pass the same number of facts.
  Collective.
*/
static PetscErrorCode agree_on(MPI_Comm comm, TrsFacts *facts)
{
  PetscErrorCode ierr;
  int64_t *values;
  int rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(PetscMalloc1((size_t)facts->n, &values));
  for (int i = 0; i < facts->n; i++) values[i] = facts->fact[i].value;
  PetscCallMPI(MPI_Bcast(values, facts->n, MPI_INT64_T, 0, comm));
  ierr = TrsAgree(comm, compare(rank, facts, values));
  PetscCall(PetscFree(values));
  PetscCall(PetscFree(facts->fact));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compare the number of features, the number of columns of each part, and the numbers of samples and
  ids of each file.
*/
static PetscErrorCode agree_on_sizes(MPI_Comm comm, const TrsDatasetInfo *info, const TrsDatasetFile *file)
{
  TrsFacts facts = {0};

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)info->n_files * TRS_FILE_FACTS + TRS_N_COLUMNS + 2, &facts.fact));
  add(&facts, info->paths[0], info->n_features, "features", "");
  for (int c = 0; c < TRS_N_COLUMNS; c++) {
    const TrsColumn *column = &file[0].column[c];

    add(&facts, info->paths[0], column->rows < 0 ? 0 : column->cols, "columns of /", column->name);
  }
  add_hash(&facts, info->paths[0], info->has_unsigned_ids, "types of ids");
  for (int k = 0; k < info->n_files; k++) {
    const char *path = info->paths[k];

    add(&facts, path, file[k].num_samples, "samples", "");
    add(&facts, path, file[k].num_values, "ids", "");
    add(&facts, path, file[k].column[TRS_COLUMN_VALUES].memory_bytes, "bytes an id", "");
  }
  PetscCall(agree_on(comm, &facts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Hash names with their final 0, so that "ab", "c" gives another hash than "a", "bc". Without names
  the hash is 0.
*/
static uint64_t hash_names(int n, const char *const *names)
{
  uint64_t hash = 0;

  for (int i = 0; names && i < n; i++) hash = XXH3_64bits_withSeed(names[i], strlen(names[i]) + 1, hash);
  return hash;
}

/*
  Compare names and num_embeddings, and then the sizes of the files. The numbers of features and
  labels must be equal already.
*/
static PetscErrorCode agree_on_names(MPI_Comm comm, const TrsDatasetInfo *info, const TrsDatasetFile *file)
{
  TrsFacts facts = {0};

  PetscFunctionBegin;
  PetscCall(PetscMalloc1((size_t)info->n_features + (size_t)info->n_files + 2, &facts.fact));
  add_hash(&facts, info->paths[0], hash_names(info->n_features, info->features), "names of features");
  add_hash(&facts, info->paths[0], hash_names(info->n_labels, info->label_names), "names of labels");
  for (int f = 0; f < info->n_features; f++)
    add(&facts, info->path, info->num_embeddings[f], "num_embeddings of feature ", info->features[f]);
  for (int k = 0; k < info->n_files; k++) add(&facts, info->paths[k], file[k].stamp.bytes, "bytes", "");
  PetscCall(agree_on(comm, &facts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add the bytes of an array to a hash. data is NULL if the dataset does not have the array. */
static void mix(uint64_t *hash, const void *data, int64_t bytes)
{
  if (data) *hash = XXH3_64bits_withSeed(data, (size_t)bytes, *hash);
}

/* Memory for a probe. */
typedef struct {
  TrsSampleRows rows;
  void *ids;
  float *weights;
} TrsProbe;

static PetscErrorCode alloc_probe(const TrsDatasetInfo *info, TrsProbe *probe)
{
  const size_t n = TRS_PROBE_SAMPLES;
  TrsSampleRows *rows = &probe->rows;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n * (size_t)info->n_features, &rows->lengths));
  PetscCall(PetscMalloc1(n + 1, &rows->offsets));
  PetscCall(PetscMalloc((size_t)TRS_PROBE_IDS * (size_t)info->value_bytes, &probe->ids));
  if (info->dense_columns) PetscCall(PetscMalloc1(n * (size_t)info->dense_columns, &rows->dense));
  if (info->n_labels) PetscCall(PetscMalloc1(n * (size_t)info->n_labels, &rows->labels));
  if (info->has_sample_weights) PetscCall(PetscMalloc1(n, &rows->weights));
  if (info->has_group) PetscCall(PetscMalloc1(n, &rows->group));
  if (info->has_time) PetscCall(PetscMalloc1(n, &rows->time));
  if (info->has_weights) PetscCall(PetscMalloc1(TRS_PROBE_IDS, &probe->weights));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_probe(TrsProbe *probe)
{
  TrsSampleRows *rows = &probe->rows;

  PetscFunctionBegin;
  PetscCall(PetscFree(rows->lengths));
  PetscCall(PetscFree(rows->offsets));
  PetscCall(PetscFree(probe->ids));
  PetscCall(PetscFree(rows->dense));
  PetscCall(PetscFree(rows->labels));
  PetscCall(PetscFree(rows->weights));
  PetscCall(PetscFree(rows->group));
  PetscCall(PetscFree(rows->time));
  PetscCall(PetscFree(probe->weights));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Hash samples first to first+n-1 and their first ids. */
static void hash_samples(TrsDataset dataset, const TrsDatasetInfo *info, int64_t first, int64_t n,
                         const TrsProbe *probe, uint64_t *hash, TrsFault *fault)
{
  const TrsRowRun samples = {first, n};
  const TrsSampleRows *rows = &probe->rows;
  TrsRowRun ids;

  if (TrsDatasetReadSamples(dataset, 1, &samples, rows, fault) != PETSC_SUCCESS) return;
  ids = (TrsRowRun){rows->offsets[0], PetscMin(rows->offsets[n] - rows->offsets[0], TRS_PROBE_IDS)};
  mix(hash, rows->lengths, n * info->n_features * (int64_t)sizeof(*rows->lengths));
  mix(hash, rows->dense, n * info->dense_columns * (int64_t)sizeof(*rows->dense));
  mix(hash, rows->labels, n * info->n_labels * (int64_t)sizeof(*rows->labels));
  mix(hash, rows->weights, n * (int64_t)sizeof(*rows->weights));
  mix(hash, rows->group, n * (int64_t)sizeof(*rows->group));
  mix(hash, rows->time, n * (int64_t)sizeof(*rows->time));
  /* The offsets are unchecked and may have any value. */
  if (ids.first < 0 || ids.n <= 0 || ids.first > info->num_values - ids.n) return;
  if (TrsDatasetReadValues(dataset, 1, &ids, probe->ids, probe->weights, fault) != PETSC_SUCCESS) return;
  mix(hash, probe->ids, ids.n * info->value_bytes);
  mix(hash, probe->weights, ids.n * (int64_t)sizeof(*probe->weights));
}

/* Compare some samples of datasets that have the same size, and compute their hash. */
static PetscErrorCode agree_on_samples(MPI_Comm comm, TrsDataset dataset, const TrsDatasetInfo *info,
                                       int64_t *sample_hash)
{
  const int64_t n = PetscMin(info->num_samples, TRS_PROBE_SAMPLES);
  TrsFacts facts = {0};
  TrsProbe probe = {.ids = NULL};
  TrsFault fault = {.code = PETSC_SUCCESS};
  uint64_t all = hash_names(info->n_features, info->features);
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(3, &facts.fact));
  PetscCall(alloc_probe(info, &probe));
  for (int i = 0; i < 3 && fault.code == PETSC_SUCCESS; i++) {
    const int64_t first = (info->num_samples - n) / 2 * i + (i == 2 ? (info->num_samples - n) % 2 : 0);
    uint64_t hash = 0;
    int64_t row;

    hash_samples(dataset, info, first, n, &probe, &hash, &fault);
    add_hash(&facts, TrsDatasetLocate(info, first, &row), hash, "samples");
    mix(&all, &hash, sizeof(hash));
  }
  *sample_hash = (int64_t)(all | 1);
  PetscCall(free_probe(&probe));
  ierr = TrsAgree(comm, TrsFaultRaise(&fault));
  if (ierr) PetscCall(PetscFree(facts.fact));
  PetscCall(ierr);
  PetscCall(agree_on(comm, &facts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDatasetCheckSame(MPI_Comm comm, TrsDataset dataset, const TrsDatasetFile *file,
                                   int64_t *sample_hash)
{
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  PetscCall(agree_on_sizes(comm, info, file));
  PetscCall(agree_on_names(comm, info, file));
  PetscCall(agree_on_samples(comm, dataset, info, sample_hash));
  PetscFunctionReturn(PETSC_SUCCESS);
}
