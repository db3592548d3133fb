/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/task_bench.h"

#include "bench/qcomm.h"
#include "bench/rates.h"
#include "core/names.h"
#include "core/version.h"
#include "session/text_output.h"

/* If the spread is larger than this, the machine is busy with other work. */
static const double too_wide = 0.1;

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
     "size of the table whose random rows are read; it should be much larger than the caches. Below 64MiB "
     "all measurements are shorter, for a trial"},
};
const TrsOptionGroup trs_bench_options = TRS_OPTION_GROUP("Benchmark", bench_specs);

/* Write the option file on rank 0. */
static PetscErrorCode write_topology(TrsOptions options, const char *path, const TrsCommGroups *groups,
                                     const TrsBenchRates *rates)
{
  TrsText text = {0};

  PetscFunctionBegin;
  PetscCall(TrsTextPrintf(
      &text, "# measured by %s %s -task bench on %d rank%s, %d a host; bytes/ms of one rank\n", TRS_NAME,
      TRS_VERSION, groups->world->size, TrsPlural(groups->world->size, "s"), groups->local_world_size));
  if (rates->spread > too_wide)
    PetscCall(
        TrsTextPrintf(&text, "# the machine was busy: rounds were %.0f%% apart\n", 100.0 * rates->spread));
  PetscCall(TrsTextPrintf(
      &text, "-topology_compute_device %s\n-topology_local_world_size %d\n-topology_%s_mem_bw %.17g\n",
      groups->world->device->name, groups->local_world_size,
      groups->world->device->host_memory ? "ddr" : "hbm", rates->memory));
  if (rates->intra_host > 0)
    PetscCall(TrsTextPrintf(&text, "-topology_intra_host_bw %.17g\n", rates->intra_host));
  else
    PetscCall(TrsTextPrintf(&text, "# -topology_intra_host_bw: one rank a host, not measured\n"));
  if (rates->inter_host > 0)
    PetscCall(TrsTextPrintf(&text, "-topology_inter_host_bw %.17g\n", rates->inter_host));
  else
    PetscCall(TrsTextPrintf(&text, "# -topology_inter_host_bw: one host, not measured\n"));
  PetscCall(TrsTextPrintf(&text, "-topology_product_rate %.17g\n-topology_stream_bw %.17g\n", rates->products,
                          rates->stream));
  PetscCall(TrsTextPrintf(&text,
                          "-topology_row_read_bw %.17g\n-topology_row_read_overhead %.17g\n"
                          "-topology_row_update_bw %.17g\n-topology_row_update_overhead %.17g\n"
                          "-topology_half_update %.17g\n-topology_stochastic_update %.17g\n",
                          rates->rows.read_bw, rates->rows.read_overhead, rates->rows.update_bw,
                          rates->rows.update_overhead, rates->rows.half_update,
                          rates->rows.stochastic_update));
  PetscCall(TrsTextPrintf(&text, "-topology_cut_bw %.17g\n-topology_cut_overhead %.17g\n", rates->rows.cut_bw,
                          rates->rows.cut_overhead));
  PetscCall(TrsTextPrintf(&text,
                          "-topology_pair_rate %.17g\n-topology_pair_overhead %.17g\n"
                          "-topology_pair_back_rate %.17g\n-topology_pair_back_overhead %.17g\n",
                          rates->pairs.rate, rates->pairs.overhead, rates->pairs.back_rate,
                          rates->pairs.back_overhead));
  PetscCall(TrsTextOutput(options, "-bench_topology", path, &text));
  PetscCall(TrsTextFree(&text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print the rates, and a warning if they are unreliable. Logically collective. */
static PetscErrorCode print_rates(MPI_Comm comm, const TrsBenchRates *rates, const char *path)
{
  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm,
                        "memory %.2f GB/s a rank, exchange inside a host %.2f GB/s, across hosts %.2f GB/s "
                        "(0: not there)\n"
                        "products %.2f GFLOP/s a rank, passes over matrices %.2f GB/s, rounds %.0f%% apart\n",
                        rates->memory / 1e6, rates->intra_host / 1e6, rates->inter_host / 1e6,
                        rates->products / 1e6, rates->stream / 1e6, 100.0 * rates->spread));
  if (rates->spread > too_wide)
    PetscCall(PetscFPrintf(comm, PETSC_STDERR,
                           "trshard: warning: the machine is too busy to tell: equal work took times that "
                           "are %.0f%% apart. Measure again when nothing else runs\n",
                           100.0 * rates->spread));
  PetscCall(PetscPrintf(comm, "wrote %s\n", path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunBench(MPI_Comm comm, TrsOptions options)
{
  TrsMachine machine;
  TrsBenchRates rates;
  const char *path = NULL;
  PetscBool qcomm;
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
    PetscCall(
        TrsAgree(comm, rank == 0 ? TrsTextOutput(options, "-bench_topology", path, NULL) : PETSC_SUCCESS));
  if (qcomm) PetscCall(TrsBenchQcomm(comm, options));
  if (!path) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetInt(options, "-bench_bytes", &bytes, NULL));
  PetscCall(TrsOptionsGetInt(options, "-bench_table_bytes", &table_bytes, NULL));
  PetscCall(TrsMachineCreate(comm, options, &machine));
  PetscCall(TrsBenchRatesMeasure(&machine, bytes, table_bytes, &rates));
  if (rank == 0) ierr = write_topology(options, path, &machine.groups, &rates);
  PetscCall(TrsAgree(comm, ierr));
  PetscCall(print_rates(comm, &rates, path));
  PetscCall(TrsMachineDestroy(&machine));
  PetscFunctionReturn(PETSC_SUCCESS);
}
