/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/machine.h"

#include "comm/relay.h"
#include "core/events.h"
#include "core/names.h"
#include "core/random/random.h"
#include "core/shared_memory.h"
#include "plan/cost/topology.h"

#include <string.h>

static const TrsOptionSpec specs[] = {
    {"-device", TRS_OPTION_ENUM, "auto", NULL, TRS_CHOICES(TRS_DEVICE_CHOICES), NULL,
     "device of tables and layers; auto: cuda if every rank has a GPU, else cpu"},
    {"-cpu_isa", TRS_OPTION_ENUM, "auto", NULL, "auto,portable,avx2,avx512", NULL,
     "instruction set of the CPU's kernels and matrix products; auto: the best that the processor has and "
     "that TRSHARD_ISA in the environment allows, with -reproducible the best that all ranks have. Results "
     "are bit-equal only with the same instruction set"},
    {"-gpu_share", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "allow several ranks to use one GPU (with -comm_backend mpi; NCCL needs one GPU for each rank)"},
};
const TrsOptionGroup trs_machine_options = TRS_OPTION_GROUP("Machine", specs);

/*
  Choose the device for -device auto: the last backend for which every rank has a device. The CPU is
  the first backend. If a later backend was rejected, store the reason that a rank without a device
  gave, because a run meant for GPUs would be slow on CPUs. Collective.
*/
static PetscErrorCode find_device(TrsMachine *machine)
{
  struct {
    int backend, rank; /* in the layout of MPI_2INT */
  } best = {0, machine->rank}, agreed;
  char why_not[256] = "";

  PetscFunctionBegin;
  for (int i = 0; trs_device_backends[i]; i++) {
    char why[256];
    int n_devices;

    PetscCall(trs_device_backends[i]->available(&n_devices, why, sizeof(why)));
    if (n_devices > 0) best.backend = i;
    PetscCall(PetscStrncpy(why_not, n_devices > 0 ? "" : why, sizeof(why_not)));
  }
  PetscCallMPI(MPI_Allreduce(&best, &agreed, 1, MPI_2INT, MPI_MINLOC, machine->comm));
  machine->device = trs_device_backends[agreed.backend];
  PetscCallMPI(MPI_Bcast(why_not, sizeof(why_not), MPI_CHAR, agreed.rank, machine->comm));
  if (why_not[0])
    snprintf(machine->device_reason, sizeof(machine->device_reason), "-device auto: %s (rank %d)", why_not,
             agreed.rank);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If several ranks of a host use the same device, check that the user has allowed this, because the
  ranks then share the device's memory and time. Collective on host.
*/
static PetscErrorCode check_sharing(TrsMachine *machine, MPI_Comm host, int local_rank, int local_size)
{
  enum { TRS_ID_BYTES = 128 };
  char mine[TRS_ID_BYTES] = "", *all;
  PetscBool share;
  int n_here = 0, n_devices = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(machine->options, "-gpu_share", &share, NULL));
  PetscCall(machine->device->identity(mine, sizeof(mine)));
  PetscCall(PetscMalloc1((size_t)local_size * TRS_ID_BYTES, &all));
  PetscCallMPI(MPI_Allgather(mine, TRS_ID_BYTES, MPI_CHAR, all, TRS_ID_BYTES, MPI_CHAR, host));
  for (int r = 0; r < local_size; r++) {
    int first = 0;

    while (strcmp(all + (size_t)first * TRS_ID_BYTES, all + (size_t)r * TRS_ID_BYTES) != 0) first++;
    n_devices += first == r;
    n_here += strcmp(all + (size_t)r * TRS_ID_BYTES, mine) == 0;
  }
  PetscCall(PetscFree(all));
  PetscCheck(
      share || !mine[0] || n_here == 1, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
      "%d rank%s on this host, %d GPU%s for them (rank %d of the host has %s): start one rank for each "
      "GPU, or let ranks share with -gpu_share (tables then share its memory, too)",
      local_size, TrsPlural(local_size, "s"), n_devices, TrsPlural(n_devices, "s"), local_rank, mine);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const char *const isas[] = {NULL, "portable", "avx2", "avx512"};

/*
  Set the instruction set of -cpu_isa; `choice` is an index of isas[]. "auto" undoes the choice of
  an earlier run in this process.
*/
static PetscErrorCode set_isa(int choice)
{
  PetscFunctionBegin;
  TrsComputeSetIsa(isas[choice]);
  TrsRandomSetIsa(TrsComputeIsa());
  PetscCheck(!isas[choice] || strcmp(TrsComputeIsa(), isas[choice]) == 0, PETSC_COMM_SELF,
             TRS_ERR_UNAVAILABLE, "-cpu_isa %s: the best that this processor has is %s", isas[choice],
             TrsComputeIsa());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the instruction set before anything is computed, because a library of matrix products keeps
  the first set that it uses. Ranks with different sets would compute different bits. So with
  -reproducible all ranks use the best instruction set that every rank's CPU has. Collective.
*/
static PetscErrorCode choose_isa(TrsMachine *machine)
{
  PetscBool reproducible;
  int choice, range[2] = {1};

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(machine->options, "-cpu_isa", &choice, NULL));
  PetscCall(TrsAgree(machine->comm, set_isa(choice)));
  while (strcmp(TrsComputeIsa(), isas[range[0]]) != 0) range[0]++;
  range[1] = -range[0];
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT, MPI_MIN, machine->comm));
  PetscCall(TrsOptionsGetBool(machine->options, "-reproducible", &reproducible, NULL));
  machine->isa_is_common = (PetscBool)(reproducible && range[0] < -range[1]);
  machine->least_isa = isas[range[0]];
  machine->most_isa = isas[machine->isa_is_common ? range[0] : -range[1]];
  if (machine->isa_is_common) PetscCall(set_isa(range[0]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Count the computing threads, after -cpu_bind has set their number. Collective. */
static PetscErrorCode count_threads(TrsMachine *machine)
{
  int range[2] = {TrsComputeThreads(), -TrsComputeThreads()};

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT, MPI_MIN, machine->comm));
  machine->least_threads = range[0];
  machine->most_threads = -range[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode choose_device(TrsMachine *machine)
{
  static const char *const names[] = {TRS_DEVICE_CHOICES(TRS_WORD_TEXT)};
  int choice, local_rank, local_size;
  PetscErrorCode ierr;
  MPI_Comm host;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(machine->options, "-device", &choice, NULL));
  if (choice == TRS_DEVICE_AUTO)
    PetscCall(find_device(machine));
  else
    PetscCall(TrsDeviceFind(names[choice], &machine->device));
  PetscCall(TrsComputeFind(machine->device->name, &machine->compute));
  PetscCallMPI(MPI_Comm_split_type(machine->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  PetscCallMPI(MPI_Comm_rank(host, &local_rank));
  PetscCallMPI(MPI_Comm_size(host, &local_size));
  ierr = machine->device->setup(local_rank, local_size);
  if (ierr == PETSC_SUCCESS && machine->device->host_memory)
    ierr = TrsCpuBind(host, machine->options, machine->binding);
  PetscCall(TrsAgree(machine->comm, ierr));
  if (machine->device->use) PetscCall(machine->device->use(-1, &machine->device_number));
  TrsStageObserve(machine->device->range);
  ierr = check_sharing(machine, host, local_rank, local_size);
  PetscCall(TrsAgree(machine->comm, ierr));
  PetscCallMPI(MPI_Comm_free(&host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Count the ranks of a host. A plan cannot describe hosts with unequal numbers of ranks. In this
  case each rank counts as a host of its own. This is slower, so a warning is printed, and pods are
  an error. Collective.
*/
static PetscErrorCode find_hosts(const TrsMachine *machine, int64_t pod, int64_t *local)
{
  int local_world_size, least, most;

  PetscFunctionBegin;
  PetscCall(TrsCommHosts(machine->comm, &local_world_size, &least, &most));
  *local = local_world_size;
  if (pod > 1 && local_world_size % pod != 0)
    PetscCall(TrsOptionError(machine->options, "-topology_pod_size",
                             "the hosts have %d to %d ranks, which are no pods of %" PRId64
                             " hosts: start as many ranks on each host, or give -topology_local_world_size",
                             least, most, pod));
  if (least != most || local_world_size != least)
    PetscCall(PetscFPrintf(
        machine->comm, PETSC_STDERR,
        least != most ? "trshard: warning: the hosts are uneven, of %d to %d ranks: each rank counts as a "
                        "host of its own, which makes exchanges slower and other plans. Start as many "
                        "ranks on each host (srun --ntasks-per-node, mpirun --map-by ppr:N:node)\n"
                      : "trshard: warning: the %d ranks of a host (%d of each) are not consecutive: each "
                        "rank counts as a host of its own, which makes exchanges slower and other plans. "
                        "Place them by host (srun -m block, mpirun --map-by core)\n",
        least, most));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_groups(TrsMachine *machine)
{
  static const char *const backends[] = {"auto", "mpi", "nccl"};
  int64_t local = 0, pod = 1, relay_bytes, ranks_per_host;
  PetscBool set, shared_memory;
  double wait_s;
  int backend;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(machine->options, "-comm_backend", &backend, NULL));
  PetscCall(TrsOptionsGetBool(machine->options, "-comm_shared_memory", &shared_memory, NULL));
  TrsSharedAllow(shared_memory);
  PetscCall(TrsOptionsGetInt(machine->options, "-comm_relay_bytes", &relay_bytes, &set));
  TrsRelayAllow(relay_bytes, set);
  PetscCall(TrsOptionsGetInt(machine->options, "-comm_ranks_per_host", &ranks_per_host, NULL));
  TrsSharedRanks((int)ranks_per_host);
  PetscCall(TrsOptionsGetReal(machine->options, "-comm_wait_seconds", &wait_s, &set));
  if (set) (void)TrsCommWaitAtMost(wait_s);
  PetscCall(TrsOptionsGetInt(machine->options, "-topology_local_world_size", &local, &set));
  PetscCall(TrsOptionsGetInt(machine->options, "-topology_pod_size", &pod, NULL));
  if (set && machine->size % (local * pod) != 0)
    PetscCall(TrsOptionError(machine->options, "-topology_local_world_size",
                             "%" PRId64 " devices a host times a pod of %" PRId64
                             " hosts do not divide the %d ranks of the run",
                             local, pod, machine->size));
  if (set)
    local *= pod;
  else
    /* the ranks that MPI reports on one host already form a pod */
    PetscCall(find_hosts(machine, pod, &local));
  machine->backend = backends[backend];
  PetscCall(TrsCommGroupsCreate(machine->comm, (int)local, machine->backend, machine->device,
                                machine->compute, &machine->groups));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMachineReplicate(TrsMachine *machine, int replicas)
{
  const int size = machine->size / replicas;
  MPI_Comm copy, owners;

  PetscFunctionBegin;
  machine->replicas = replicas;
  machine->shard_rank = machine->rank % size;
  if (replicas == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_split(machine->comm, machine->rank / size, machine->rank, &copy));
  PetscCallMPI(MPI_Comm_split(machine->comm, machine->shard_rank, machine->rank, &owners));
  PetscCall(TrsCommGroupsCreate(copy, TrsReplicaHost(machine->groups.local_world_size, size),
                                machine->backend, machine->device, machine->compute, &machine->shards));
  PetscCall(TrsCommCreate(owners, machine->backend, machine->device, machine->compute, &machine->owners));
  machine->owners->next = machine->groups.world->next;
  machine->groups.world->next = machine->shards.world->next;
  machine->shards.world->next = machine->owners;
  PetscCallMPI(MPI_Comm_free(&copy));
  PetscCallMPI(MPI_Comm_free(&owners));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsMachineCreate(MPI_Comm comm, TrsOptions options, TrsMachine *machine)
{
  PetscFunctionBegin;
  *machine = (TrsMachine){.comm = comm, .options = options};
  PetscCallMPI(MPI_Comm_rank(comm, &machine->rank));
  PetscCallMPI(MPI_Comm_size(comm, &machine->size));
  PetscCall(choose_isa(machine));
  PetscCall(choose_device(machine));
  PetscCall(count_threads(machine));
  PetscCall(create_groups(machine));
  machine->shards = machine->groups;
  machine->shard_rank = machine->rank;
  machine->replicas = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsMachineMessages(const TrsMachine *machine, int64_t *n_messages, int64_t *bytes)
{
  TrsComm comm = machine->groups.world;

  *n_messages = *bytes = 0;
  do {
    *n_messages += comm->n_messages;
    *bytes += comm->message_bytes;
    comm = comm->next;
  } while (comm && comm != machine->groups.world);
}

PetscErrorCode TrsMachineDestroy(TrsMachine *machine)
{
  PetscFunctionBegin;
  TrsStageObserve(NULL);
  if (machine->owners) {
    machine->groups.world->next = machine->owners->next = NULL;
    PetscCall(TrsCommDestroy(&machine->owners));
    PetscCall(TrsCommGroupsDestroy(&machine->shards));
  }
  PetscCall(TrsCommGroupsDestroy(&machine->groups));
  PetscFunctionReturn(PETSC_SUCCESS);
}
