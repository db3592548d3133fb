/* SPDX-License-Identifier: BSD-3-Clause */
#include "train/replicas.h"

#include "core/events.h"

/*
  Number of elements that are averaged at once. They have 4 MiB, so the exchange needs little
  memory. The kernel for averages reads them as rows with TRS_MEAN_COLUMNS columns.
*/
enum { TRS_AVERAGED_AT_ONCE = 1 << 20, TRS_MEAN_COLUMNS = 256 };

/*
  Refuse options under which ranks send sums of gradients of several ids or bags, because such sums
  do not belong to one id of the batch.
*/
static PetscErrorCode refuse_merged(TrsOptions options)
{
  static const char *const names[] = {"-ec_index_dedup", "-ebc_variable_batch"};

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    PetscBool given;

    PetscCall(TrsOptionsGetBool(options, names[i], &given, NULL));
    if (given)
      PetscCall(TrsOptionError(options, names[i], "does not go with -replica_sync gradients: leave one out"));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Allocate the scratch memory of an average. */
static PetscErrorCode make_room(TrsReplicas *replicas)
{
  const TrsDeviceOps *device = replicas->owners->device;
  const int64_t n = TRS_AVERAGED_AT_ONCE / TRS_MEAN_COLUMNS, bytes = n * (int64_t)sizeof(int32_t);
  int32_t *sizes;

  PetscFunctionBegin;
  PetscCall(
      TrsDeviceBufferReserve(device, &replicas->numbers, TRS_AVERAGED_AT_ONCE * (int64_t)sizeof(float)));
  PetscCall(TrsDeviceBufferReserve(device, &replicas->sizes, bytes));
  PetscCall(PetscMalloc1((size_t)n, &sizes));
  for (int64_t i = 0; i < n; i++) sizes[i] = replicas->owners->size;
  PetscCall(device->copy(replicas->sizes.data, sizes, bytes, NULL));
  PetscCall(device->stream_synchronize(NULL));
  PetscCall(PetscFree(sizes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReplicasFromOptions(TrsOptions options, TrsComm owners, TrsReplicas *replicas)
{
  int64_t copies;
  int sync;
  PetscBool set, sync_set;

  PetscFunctionBegin;
  *replicas = (TrsReplicas){.owners = owners, .every = 1};
  PetscCall(TrsOptionsGetEnum(options, "-replica_sync", &sync, &sync_set));
  replicas->exact = (PetscBool)(sync == TRS_REPLICA_SYNC_GRADIENTS);
  PetscCall(TrsOptionsGetInt(options, "-plan_replicas", &copies, NULL));
  PetscCall(TrsOptionsGetInt(options, "-replica_sync_every", &replicas->every, &set));
  if (copies == 1 && (set || sync_set))
    PetscCall(TrsOptionError(options, set ? "-replica_sync_every" : "-replica_sync",
                             "needs -plan_replicas of at least 2, the number of copies of the tables, or 0"));
  if (set && replicas->exact)
    PetscCall(TrsOptionError(options, "-replica_sync_every",
                             "does not go with -replica_sync gradients, which exchanges in every step"));
  if (replicas->exact && copies != 1) PetscCall(refuse_merged(options));
  if (!owners) PetscFunctionReturn(PETSC_SUCCESS);
  if (!replicas->exact) PetscCall(make_room(replicas));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReplicasFree(TrsReplicas *replicas)
{
  PetscFunctionBegin;
  if (!replicas->owners) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDeviceBufferFree(replicas->owners->device, &replicas->numbers));
  PetscCall(TrsDeviceBufferFree(replicas->owners->device, &replicas->sizes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Divide n sums by the number of copies. */
static PetscErrorCode divide(const TrsReplicas *replicas, TrsStream stream, int64_t n,
                             float *sum) /* NOLINT(readability-non-const-parameter): written to */
{
  const TrsComputeOps *compute = replicas->owners->compute;
  const int64_t rows = n / TRS_MEAN_COLUMNS, rest = n % TRS_MEAN_COLUMNS;
  TrsMeanColumns mean = {.columns = TrsFloats(sum, TRS_MEAN_COLUMNS),
                         .lengths = (const int32_t *)replicas->sizes.data,
                         .cols = TRS_MEAN_COLUMNS};

  PetscFunctionBegin;
  if (rows > 0) PetscCall(compute->divide_columns(stream, rows, 1, &mean));
  mean.columns = TrsMatrixColumns(mean.columns, rows * TRS_MEAN_COLUMNS);
  mean.cols = rest;
  if (rest > 0) PetscCall(compute->divide_columns(stream, 1, 1, &mean));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Average n numbers in device memory over the copies. */
static PetscErrorCode average(const TrsReplicas *replicas, TrsStream stream, TrsDType dtype, int64_t n,
                              void *numbers)
{
  const TrsComm owners = replicas->owners;

  PetscFunctionBegin;
  for (int64_t first = 0; first < n; first += TRS_AVERAGED_AT_ONCE) {
    const int64_t here = PetscMin(n - first, TRS_AVERAGED_AT_ONCE);
    char *part = (char *)numbers + first * TrsDTypeBytes(dtype);
    float *sum = (float *)(dtype == TRS_FP32 ? (void *)part : replicas->numbers.data);
    TrsRequest request = NULL;

    if (dtype != TRS_FP32) PetscCall(owners->compute->convert(stream, here, dtype, part, TRS_FP32, sum));
    PetscCall(TrsCommAllreduce(owners, stream, NULL, sum, here, &request));
    PetscCall(TrsRequestWait(&request, stream));
    PetscCall(divide(replicas, stream, here, sum));
    if (dtype != TRS_FP32) PetscCall(owners->compute->convert(stream, here, TRS_FP32, sum, dtype, part));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsReplicasAverage(TrsReplicas *replicas, const TrsEmbeddingShards *shards, TrsStream stream)
{
  TrsStage before;

  PetscFunctionBegin;
  if (!replicas->owners || !replicas->differ) PetscFunctionReturn(PETSC_SUCCESS);
  /* the time counts as an update of tables */
  PetscCall(TrsStageSwitch(TRS_STAGE_EMBEDDING_BACKWARD, &before));
  for (int i = 0; i < shards->n; i++) {
    const TrsTbeTable *table = &shards->shard[i].tbe;
    const TrsEmbeddingStates states = TrsEmbeddingShardsStates(shards, shards->shard[i].table);

    PetscCall(average(replicas, stream, table->dtype, table->rows * table->stride, table->weight));
    for (int s = 0; s < states.n; s++)
      PetscCall(average(replicas, stream, TRS_FP32, table->rows * (states.rowwise[s] ? 1 : table->dim),
                        table->state[s]));
  }
  replicas->differ = PETSC_FALSE;
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
