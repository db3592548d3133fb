/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/memory_check.h"

#include "compute/quant.h"
#include "core/names.h"
#include "core/random/random.h"
#include "optim/sparse_optimizer.h"
#include "spec/text.h"

#include <string.h>
#include <unistd.h>

enum { TRS_HOST_BYTES = 64, TRS_ID_BYTES = 128 };

/* Purposes for which a rank needs memory. */
enum { TRS_NEED_ROWS, TRS_NEED_STATES, TRS_NEED_BATCHES, TRS_N_NEEDS };

/* Add the bytes that this rank's shards of a table need in the device's memory. */
static void add_table(const TrsMachine *machine, const TrsTableConfig *table, const TrsTablePlan *plan,
                      const TrsSparseOptimizerArgs *optimizer, PetscBool quantised, double *bytes)
{
  const PetscBool host = machine->device->host_memory,
                  uvm = (PetscBool)(!host && TrsKernelHome(plan->compute_kernel) != TRS_ROWS_DEVICE);
  double share = uvm ? 0 : 1; /* share of the rows that is in the device's memory */
  double of_rows, of_elements;

  if (uvm && TrsKernelKeepsLines(plan->compute_kernel))
    share = plan->has_cache_load_factor ? plan->cache_load_factor : TRS_CACHE_LOAD_FACTOR;
  for (int i = 0; i < plan->n_shards; i++) {
    const TrsShard *shard = &plan->shard[i];

    if (shard->rank != machine->shard_rank || shard->cols == 0) continue;
    bytes[TRS_NEED_ROWS] += share * (double)shard->rows *
                            (quantised
                                 ? (double)TrsQuantRowBytes(table->data_type, TRS_ROWS_TBE, (int)shard->cols)
                                 : (double)(shard->cols * TrsDTypeBytes(table->data_type)));
    if (host) bytes[TRS_NEED_ROWS] += (double)shard->rows * (double)TrsTableKeysRowBytes(table);
    if (!optimizer || host) continue;
    TrsSparseOptimizerStateBytes(optimizer->kind, shard->rows, shard->cols, &of_rows, &of_elements);
    bytes[TRS_NEED_STATES] += of_rows + (!uvm || table->constraints.enforce_hbm ? of_elements : 0);
  }
}

/* Count the bytes of rows and optimizer states that this rank will allocate for its tables. */
static PetscErrorCode count_tables(const TrsMachine *machine, const TrsTableConfigs *tables,
                                   const TrsShardingPlan *shardings, PetscBool training, PetscBool quantised,
                                   double *bytes)
{
  TrsSparseOptimizers optimizers = {.n = 0};

  PetscFunctionBegin;
  if (training) PetscCall(TrsSparseOptimizersFromOptions(machine->options, tables, &optimizers));
  for (int t = 0; t < tables->n; t++) {
    const TrsTablePlan *plan = TrsShardingPlanFind(shardings, tables->table[t].name);

    if (plan)
      add_table(machine, &tables->table[t], plan, training ? TrsSparseOptimizersOf(&optimizers, t) : NULL,
                quantised, bytes);
  }
  if (training) PetscCall(TrsSparseOptimizersFree(&optimizers));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the ranks that share this rank's memory: the ranks on its host, or the ranks on its GPU. Free
  the communicator with MPI_Comm_free(). Collective.
*/
static PetscErrorCode find_sharers(const TrsMachine *machine, MPI_Comm *sharers)
{
  char device[TRS_ID_BYTES] = "";
  MPI_Comm host;

  PetscFunctionBegin;
  PetscCall(machine->device->identity(device, sizeof(device)));
  PetscCallMPI(MPI_Comm_split_type(machine->comm, MPI_COMM_TYPE_SHARED, machine->rank, MPI_INFO_NULL, &host));
  PetscCallMPI(MPI_Comm_split(host, (int)(TrsNameHash(device) & 0x7fffffff), machine->rank, sharers));
  PetscCallMPI(MPI_Comm_free(&host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode refuse(const TrsMachine *machine, int n_sharers, const double *bytes, double free_bytes)
{
  char host[TRS_HOST_BYTES] = "?", sharers[64] = "", tables[32], more[128] = "", text[32], is_free[32];
  const PetscBool gpu = (PetscBool)!machine->device->host_memory;

  PetscFunctionBegin;
  (void)gethostname(host, sizeof(host) - 1);
  if (n_sharers > 1)
    PetscCall(
        PetscSNPrintf(sharers, sizeof(sharers), " and the %d ranks that share its memory", n_sharers - 1));
  if (bytes[TRS_NEED_STATES] > 0)
    PetscCall(PetscSNPrintf(more, sizeof(more), " and %s of their optimizer states",
                            TrsBytesText(bytes[TRS_NEED_STATES], text, sizeof(text))));
  if (bytes[TRS_NEED_BATCHES] > 0)
    PetscCall(PetscSNPrintf(more + strlen(more), sizeof(more) - strlen(more), " and %s of batches",
                            TrsBytesText(bytes[TRS_NEED_BATCHES], text, sizeof(text))));
  SETERRQ(
      PETSC_COMM_SELF, TRS_ERR_MEMORY,
      "the plan gives rank %d on %s%s %s of tables%s, but %s of %s are free there: use more %s, a smaller "
      "-tables_data_type (fp16, bf16)%s, or plan with less (%s)",
      machine->rank, host, sharers, TrsBytesText(bytes[TRS_NEED_ROWS], tables, sizeof(tables)), more,
      TrsBytesText(free_bytes, is_free, sizeof(is_free)), gpu ? "the GPU's memory" : "memory",
      gpu ? "GPUs" : "hosts",
      gpu ? ", tables in host memory (-tables_compute_kernels fused_uvm_caching), a smaller -batch_size" : "",
      gpu ? "-topology_hbm_cap, -topology_hbm_cap_per_rank" : "-topology_ddr_cap");
}

PetscErrorCode TrsMemoryCheck(const TrsMachine *machine, const TrsTableConfigs *tables,
                              const TrsShardingPlan *plan, const TrsBatchShape *shape, PetscBool quantised)
{
  double bytes[TRS_N_NEEDS] = {0}, needed = 0, least;
  int64_t free_bytes, total_bytes;
  PetscErrorCode ierr = PETSC_SUCCESS;
  MPI_Comm sharers;
  int n_sharers;

  PetscFunctionBegin;
  PetscCall(count_tables(machine, tables, plan, shape->training, quantised, bytes));
  PetscCall(TrsBatchBytes(machine, tables, plan, shape, &bytes[TRS_NEED_BATCHES]));
  PetscCall(machine->device->memory(&free_bytes, &total_bytes));
  PetscCall(find_sharers(machine, &sharers));
  PetscCallMPI(MPI_Comm_size(sharers, &n_sharers));
  least = (double)free_bytes;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, bytes, TRS_N_NEEDS, MPI_DOUBLE, MPI_SUM, sharers));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_DOUBLE, MPI_MIN, sharers));
  PetscCallMPI(MPI_Comm_free(&sharers));
  for (int i = 0; i < TRS_N_NEEDS; i++) needed += bytes[i];
  if (needed > least) ierr = refuse(machine, n_sharers, bytes, least);
  PetscCall(TrsAgree(machine->comm, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}
