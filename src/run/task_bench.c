/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/task_bench.h"

#include "api/machine.h"
#include "core/random.h"
#include "core/version.h"
#include "run/bench_qcomm.h"
#include "run/report.h"
#include "run/text_output.h"

#include <stdlib.h>

enum {
  TRS_BENCH_ROUNDS = 7,
  TRS_BENCH_DIM = 64,
  TRS_BENCH_POOLING = 16,
  TRS_BENCH_BAGS = 8192,
  /* 268 MB of rows: in comparison a launch costs little, and a GPU's cache is small. */
  TRS_BENCH_DEVICE_BAGS = 65536
};

static const TrsOptionSpec bench_specs[] = {
    {"-bench_topology", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "write this machine's bandwidths to this option file, as -topology_ options"},
    {"-bench_qcomm", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "train -bench_steps steps, then print what each -qcomm_ precision would lose and save"},
    {"-bench_steps", TRS_OPTION_INT, "10", "[1,1000000]", NULL, "steps",
     "steps to train before -bench_qcomm measures the pooled rows and their gradients"},
    {"-bench_bytes", TRS_OPTION_BYTES, "16MiB", "[1024,1073741824]", NULL, "bytes",
     "bytes that a rank sends in one timed exchange"},
    {"-bench_table_bytes", TRS_OPTION_BYTES, "512MiB", "[1048576,]", NULL, "bytes",
     "size of the table whose random rows are read; it should be much larger than the caches"},
};
const TrsOptionGroup trs_bench_options = TRS_OPTION_GROUP("Benchmark", bench_specs);

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median over the rounds of the slowest rank's time, for which a step waits. Collective. */
static PetscErrorCode median_of_slowest(MPI_Comm comm, double seconds[TRS_BENCH_ROUNDS], double *median)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, seconds, TRS_BENCH_ROUNDS, MPI_DOUBLE, MPI_MAX, comm));
  qsort(seconds, TRS_BENCH_ROUNDS, sizeof(*seconds), by_value);
  *median = seconds[TRS_BENCH_ROUNDS / 2];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Draw a round's ids by way of `host`.
  Each round uses other rows, because the last ones may still be cached.
*/
static PetscErrorCode draw_values(const TrsDeviceOps *device, int round, int64_t rows, int64_t n,
                                  int64_t *host, void *values)
{
  PetscFunctionBegin;
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits[4];
    TrsRandom(0, TRS_RANDOM_TEST, (uint64_t)round, (uint64_t)i, bits);
    host[i] = (int64_t)(((uint64_t)bits[1] << 32 | bits[0]) % (uint64_t)rows);
  }
  PetscCall(device->copy(values, host, n * (int64_t)sizeof(*host), NULL));
  PetscCall(device->stream_synchronize(NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measure the bytes/ms at which a rank's lookups read rows while all ranks do the same. */
static PetscErrorCode measure_memory(MPI_Comm comm, const TrsDeviceOps *device, const TrsComputeOps *compute,
                                     int64_t table_bytes, double *bytes_per_ms)
{
  const int64_t row_bytes = TRS_BENCH_DIM * (int64_t)sizeof(float), rows = table_bytes / row_bytes;
  const int64_t half = rows / 2 / TRS_BENCH_POOLING; /* in a small table few rows are read twice */
  const int64_t bags = device->host_memory ? TRS_BENCH_BAGS : PetscMin(half, (int64_t)TRS_BENCH_DEVICE_BAGS);
  const int64_t n = bags * TRS_BENCH_POOLING;
  TrsTbeTable table = {.rows = rows, .stride = TRS_BENCH_DIM, .dim = TRS_BENCH_DIM, .dtype = TRS_FP32};
  const TrsTbeFeature feature = {.table = 0};
  const TrsTbe tbe = {.n_tables = 1, .n_features = 1, .table = &table, .feature = &feature};
  TrsTbeInput input = {.batch = bags, .n_values = n};
  double seconds[TRS_BENCH_ROUNDS], median;
  void *offsets, *values, *out;
  TrsWorkspace workspace;
  int64_t *host;

  PetscFunctionBegin;
  PetscCall(device->alloc(rows * row_bytes, &table.weight));
  /* Write zeros, so that every page has memory of its own. */
  PetscCall(device->zero(table.weight, rows * row_bytes, NULL));
  PetscCall(device->alloc(bags * row_bytes, &out));
  PetscCall(device->alloc((bags + 1) * (int64_t)sizeof(*host), &offsets));
  PetscCall(device->alloc(n * (int64_t)sizeof(*host), &values));
  /* This memory is staging for ids and for offsets. There are more ids than offsets. */
  PetscCall(TrsAlloc(n, sizeof(*host), &host));
  PetscCall(compute->workspace_create(&workspace));
  for (int64_t b = 0; b <= bags; b++) host[b] = b * TRS_BENCH_POOLING;
  PetscCall(device->copy(offsets, host, (bags + 1) * (int64_t)sizeof(*host), NULL));
  /* Finish the copy before `host` is used again. */
  PetscCall(device->stream_synchronize(NULL));
  input.offsets = offsets;
  input.values = values;
  for (int round = 0; round < TRS_BENCH_ROUNDS; round++) {
    PetscCall(draw_values(device, round, rows, n, host, values));
    PetscCallMPI(MPI_Barrier(comm));
    seconds[round] = -TrsReportClock();
    PetscCall(compute->tbe_forward(NULL, workspace, &tbe, &input, (float *)out, TRS_BENCH_DIM));
    PetscCall(device->stream_synchronize(NULL));
    seconds[round] += TrsReportClock();
  }
  PetscCall(median_of_slowest(comm, seconds, &median));
  *bytes_per_ms = (double)(n * row_bytes) / (1e3 * median);
  PetscCall(compute->workspace_destroy(&workspace));
  PetscCall(TrsFree(&host));
  PetscCall(device->release(&values));
  PetscCall(device->release(&offsets));
  PetscCall(device->release(&out));
  PetscCall(device->release(&table.weight));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Measure the bytes/ms that a rank sends to the others of its group while all groups exchange. The
  result is 0 for a group of one.
*/
static PetscErrorCode measure_exchange(MPI_Comm comm, TrsComm group, int64_t bytes, double *bytes_per_ms)
{
  const int64_t each = bytes / PetscMax(group->size, 1) / (int64_t)sizeof(float);
  double seconds[TRS_BENCH_ROUNDS], median;
  int64_t *counts, *displs;
  void *send, *recv;

  PetscFunctionBegin;
  *bytes_per_ms = 0;
  if (group->size == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc2((size_t)group->size, &counts, (size_t)group->size, &displs));
  for (int q = 0; q < group->size; q++) {
    counts[q] = each;
    displs[q] = q * each;
  }
  PetscCall(TrsDeviceAllocShared(group->device, group->size * each * (int64_t)sizeof(float), &send));
  PetscCall(group->device->alloc(group->size * each * (int64_t)sizeof(float), &recv));
  /* The first round touches the memory. */
  for (int round = -1; round < TRS_BENCH_ROUNDS; round++) {
    TrsRequest request = NULL;
    double start_s;
    PetscCallMPI(MPI_Barrier(comm));
    start_s = TrsReportClock();
    PetscCall(
        TrsCommAlltoallv(group, NULL, send, counts, displs, recv, counts, displs, sizeof(float), &request));
    PetscCall(TrsRequestWait(&request, NULL));
    /* The wait above may hold up only the stream and not the host. */
    PetscCall(group->device->stream_synchronize(NULL));
    if (round >= 0) seconds[round] = TrsReportClock() - start_s;
  }
  PetscCall(median_of_slowest(comm, seconds, &median));
  *bytes_per_ms = (double)((group->size - 1) * each) * sizeof(float) / (1e3 * median);
  PetscCall(group->device->release(&send));
  PetscCall(group->device->release(&recv));
  PetscCall(PetscFree2(counts, displs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write the option file on rank 0. `memory` is the rate of the memory that the device has for
  tables, its own or the host's.
*/
static PetscErrorCode write_topology(const char *path, const TrsCommGroups *groups, double memory,
                                     double intra, double inter)
{
  TrsText text = {0};

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(&text,
                          "# measured by %s %s -task bench on %d ranks, %d a host; bytes/ms of one rank\n",
                          TRS_NAME, TRS_VERSION, groups->world->size, groups->local_world_size));
  PetscCall(TrsTextPrintf(&text, "-topology_local_world_size %d\n-topology_%s_mem_bw %.17g\n",
                          groups->local_world_size, groups->world->device->host_memory ? "ddr" : "hbm",
                          memory));
  if (intra > 0)
    PetscCall(TrsTextPrintf(&text, "-topology_intra_host_bw %.17g\n", intra));
  else
    PetscCall(TrsTextPrintf(&text, "# -topology_intra_host_bw: one rank a host, not measured\n"));
  if (inter > 0)
    PetscCall(TrsTextPrintf(&text, "-topology_inter_host_bw %.17g\n", inter));
  else
    PetscCall(TrsTextPrintf(&text, "# -topology_inter_host_bw: one host, not measured\n"));
  PetscCall(TrsTextOutput("-bench_topology", path, &text));
  PetscCall(TrsTextFree(&text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunBench(MPI_Comm comm, TrsOptions options)
{
  TrsMachine machine;
  const char *path = NULL;
  PetscBool qcomm;
  double memory = 0, intra = 0, inter = 0;
  int64_t bytes, table_bytes;
  PetscErrorCode ierr = PETSC_SUCCESS;
  int rank;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-bench_topology", &path, NULL));
  PetscCall(TrsOptionsGetBool(options, "-bench_qcomm", &qcomm, NULL));
  PetscCheck(
      path || qcomm, PETSC_COMM_SELF, TRS_ERR_OPTION,
      "-task bench measures the topology: give -bench_topology FILE, the option file to write; or what "
      "quantised communication loses: -bench_qcomm");
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  if (path)
    PetscCall(TrsAgree(comm, rank == 0 ? TrsTextOutput("-bench_topology", path, NULL) : PETSC_SUCCESS));
  if (qcomm) PetscCall(TrsBenchQcomm(comm, options));
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetInt(options, "-bench_bytes", &bytes, NULL));
  PetscCall(TrsOptionsGetInt(options, "-bench_table_bytes", &table_bytes, NULL));
  PetscCall(TrsMachineCreate(comm, options, &machine));
  PetscCall(measure_memory(comm, machine.device, machine.compute, table_bytes, &memory));
  PetscCall(measure_exchange(comm, machine.groups.host, bytes, &intra));
  PetscCall(measure_exchange(comm, machine.groups.cross, bytes, &inter));
  if (rank == 0) ierr = write_topology(path, &machine.groups, memory, intra, inter);
  PetscCall(TrsAgree(comm, ierr));
  PetscCall(PetscPrintf(comm,
                        "memory %.2f GB/s a rank, exchange inside a host %.2f GB/s, across hosts %.2f GB/s "
                        "(0: not there)\nwrote %s\n",
                        memory / 1e6, intra / 1e6, inter / 1e6, path));
  PetscCall(TrsMachineDestroy(&machine));
  PetscFunctionReturn(PETSC_SUCCESS);
}
