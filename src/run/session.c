/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/session.h"

#include "core/events.h"
#include "core/random.h"
#include "core/shared_memory.h"
#include "data/label.h"
#include "plan/planner.h"
#include "quant/quantised_tables.h"
#include "run/memory_check.h"
#include "run/text_output.h"
#include "spec/table_choices.h"
#include "train/task_metrics.h"

#include <string.h>
#include <unistd.h>

/*
  -device auto takes the last backend that has a device on every rank. The CPU is the first backend.
  If the result is not the last one of this build, a rank without a device says why: a run meant for
  GPUs would crawl on CPUs. Collective.
*/
static PetscErrorCode find_device(TrsSession *s)
{
  struct {
    int backend, rank; /* laid out as MPI_2INT */
  } best = {0, s->rank}, agreed;
  char why_not[256] = "";

  PetscFunctionBegin;
  for (int i = 0; trs_device_backends[i]; i++) {
    char why[256];
    int n_devices;

    PetscCall(trs_device_backends[i]->available(&n_devices, why, sizeof(why)));
    if (n_devices > 0) best.backend = i;
    PetscCall(PetscStrncpy(why_not, n_devices > 0 ? "" : why, sizeof(why_not)));
  }
  PetscCallMPI(MPI_Allreduce(&best, &agreed, 1, MPI_2INT, MPI_MINLOC, s->comm));
  s->device = trs_device_backends[agreed.backend];
  PetscCallMPI(MPI_Bcast(why_not, sizeof(why_not), MPI_CHAR, agreed.rank, s->comm));
  if (why_not[0])
    snprintf(s->device_reason, sizeof(s->device_reason), "-device auto: %s (rank %d)", why_not, agreed.rank);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that the user allowed sharing if several ranks of a host have one device. They share its
  memory and time. Collective on host.
*/
static PetscErrorCode check_sharing(TrsSession *s, MPI_Comm host, int local_rank, int local_size)
{
  enum { TRS_ID_BYTES = 128 };
  char mine[TRS_ID_BYTES] = "", *all;
  PetscBool share;
  int n_here = 0, n_devices = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(s->options, "-gpu_share", &share, NULL));
  PetscCall(s->device->identity(mine, sizeof(mine)));
  PetscCall(PetscMalloc1((size_t)local_size * TRS_ID_BYTES, &all));
  PetscCallMPI(MPI_Allgather(mine, TRS_ID_BYTES, MPI_CHAR, all, TRS_ID_BYTES, MPI_CHAR, host));
  for (int r = 0; r < local_size; r++) {
    int first = 0;

    while (strcmp(all + (size_t)first * TRS_ID_BYTES, all + (size_t)r * TRS_ID_BYTES) != 0) first++;
    n_devices += first == r;
    n_here += strcmp(all + (size_t)r * TRS_ID_BYTES, mine) == 0;
  }
  PetscCall(PetscFree(all));
  PetscCheck(share || !mine[0] || n_here == 1, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "%d ranks on this host, %d GPU%s for them (rank %d of the host has %s): start one rank for each "
             "GPU, or let ranks share with -gpu_share (tables then share its memory, too)",
             local_size, n_devices, n_devices == 1 ? "" : "s", local_rank, mine);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the instruction set before anything is computed, because a library of matrix products keeps
  its first choice.
*/
static PetscErrorCode choose_isa(const TrsSession *s)
{
  static const char *const names[] = {NULL, "portable", "avx2", "avx512"};
  int choice;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(s->options, "-cpu_isa", &choice, NULL));
  if (!names[choice]) PetscFunctionReturn(PETSC_SUCCESS);
  TrsComputeSetIsa(names[choice]);
  TrsRandomSetIsa(names[choice]);
  PetscCheck(strcmp(TrsComputeIsa(), names[choice]) == 0, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
             "-cpu_isa %s: the best that this processor has is %s", names[choice], TrsComputeIsa());
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode choose_device(TrsSession *s)
{
  static const char *const names[] = {TRS_DEVICE_CHOICES(TRS_WORD_TEXT)};
  int choice, local_rank, local_size;
  PetscErrorCode ierr;
  MPI_Comm host;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(s->options, "-device", &choice, NULL));
  if (choice == TRS_DEVICE_AUTO)
    PetscCall(find_device(s));
  else
    PetscCall(TrsDeviceFind(names[choice], &s->device));
  PetscCall(TrsComputeFind(s->device->name, &s->compute));
  PetscCallMPI(MPI_Comm_split_type(s->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  PetscCallMPI(MPI_Comm_rank(host, &local_rank));
  PetscCallMPI(MPI_Comm_size(host, &local_size));
  ierr = s->device->setup(local_rank, local_size);
  if (ierr == PETSC_SUCCESS && s->device->host_memory) ierr = TrsCpuBind(host, s->options, s->binding);
  PetscCall(TrsAgree(s->comm, ierr));
  TrsStageObserve(s->device->range);
  ierr = check_sharing(s, host, local_rank, local_size);
  PetscCall(TrsAgree(s->comm, ierr));
  PetscCallMPI(MPI_Comm_free(&host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Let a wait end a little before the watchdog would end the rank. The wait can say more about the
  hang.
*/
static PetscErrorCode limit_waits(TrsSession *s)
{
  double wait_s, watchdog_s;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetReal(s->options, "-watchdog_seconds", &watchdog_s, NULL));
  wait_s = watchdog_s > 0 ? 0.8 * watchdog_s : 300;
  PetscCall(TrsOptionsGetReal(s->options, "-comm_wait_seconds", &wait_s, NULL));
  (void)TrsCommWaitAtMost(wait_s);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Hosts with unequal numbers of ranks cannot be told apart by a plan: each rank then counts as a
  host of its own, which is slower, and said; a pod of hosts has no meaning. Collective.
*/
static PetscErrorCode find_hosts(const TrsSession *s, int64_t pod, int64_t *local)
{
  int local_world_size, least, most;

  PetscFunctionBegin;
  PetscCall(TrsCommHosts(s->comm, &local_world_size, &least, &most));
  *local = local_world_size;
  if (pod > 1 && local_world_size % pod != 0)
    PetscCall(TrsOptionError(s->options, "-topology_pod_size",
                             "the hosts have %d to %d ranks, which are no pods of %" PRId64
                             " hosts: start as many ranks on each host, or give -topology_local_world_size",
                             least, most, pod));
  if (least != most || local_world_size != least)
    PetscCall(PetscFPrintf(
        s->comm, PETSC_STDERR,
        least != most ? "trshard: warning: the hosts are uneven, of %d to %d ranks: each rank counts as a "
                        "host of its own, which makes exchanges slower and other plans. Start as many "
                        "ranks on each host (srun --ntasks-per-node, mpirun --map-by ppr:N:node)\n"
                      : "trshard: warning: the %d ranks of a host (%d of each) are not consecutive: each "
                        "rank counts as a host of its own, which makes exchanges slower and other plans. "
                        "Place them by host (srun -m block, mpirun --map-by core)\n",
        least, most));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_groups(TrsSession *s)
{
  static const char *const backends[] = {"auto", "mpi", "nccl"};
  int64_t local = 0, pod = 1;
  PetscBool set, shared_memory;
  int backend;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(s->options, "-comm_backend", &backend, NULL));
  PetscCall(TrsOptionsGetBool(s->options, "-comm_shared_memory", &shared_memory, NULL));
  TrsSharedAllow(shared_memory);
  PetscCall(limit_waits(s));
  PetscCall(TrsOptionsGetInt(s->options, "-topology_local_world_size", &local, &set));
  PetscCall(TrsOptionsGetInt(s->options, "-topology_pod_size", &pod, NULL));
  if (set && s->size % (local * pod) != 0)
    PetscCall(TrsOptionError(s->options, "-topology_local_world_size",
                             "%" PRId64 " devices a host times a pod of %" PRId64
                             " hosts do not divide the %d ranks of the run",
                             local, pod, s->size));
  if (set)
    local *= pod;
  else
    PetscCall(find_hosts(s, pod, &local)); /* a host that MPI finds is a pod */
  PetscCall(TrsCommGroupsCreate(s->comm, (int)local, backends[backend], s->device, s->compute, &s->groups));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode open_datasets(TrsSession *s, PetscBool training)
{
  const char *const *train = NULL, *const *eval = NULL;
  int n_train = 0, n_eval = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetStrings(s->options, "-data_train", &n_train, &train, NULL));
  PetscCall(TrsOptionsGetStrings(s->options, "-data_eval", &n_eval, &eval, NULL));
  PetscCheck(!training || train, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-data_train is missing: training needs a dataset (HDF5, see input/FORMAT.md)");
  PetscCheck(training || eval, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-data_eval is missing: evaluation needs a dataset (HDF5, see input/FORMAT.md)");
  if (training) PetscCall(TrsDatasetOpen(s->comm, n_train, train, &s->train));
  if (eval) PetscCall(TrsDatasetOpen(s->comm, n_eval, eval, &s->eval));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find a dataset's label of a task. option: for messages, or NULL. */
static PetscErrorCode find_label(const TrsSession *s, const TrsDatasetInfo *info, int t, PetscBool told,
                                 int *label)
{
  const TrsTaskConfig *task = &s->tasks.task[t];
  const char *name = s->label, *option = told ? "-data_label" : NULL;

  PetscFunctionBegin;
  if (s->tasks.named) {
    name = task->label ? task->label : info->label_names ? task->name : NULL;
    option = "-tasks";
    if (task->label) PetscCall(TrsOptionsObjectName(s->options, "task", task->name, "label", &option));
  }
  PetscCall(TrsLabelFind(info, name, option, label));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the labels: those of the tasks, or that of -data_label, else the first of the training
  data, or of the evaluation data if there is no other. All data must have them.
*/
static PetscErrorCode choose_labels(TrsSession *s)
{
  const TrsDataset datasets[2] = {s->train, s->eval};
  PetscBool given, chosen;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(s->options, "-data_label", &s->label, &given));
  if (given && s->tasks.named)
    PetscCall(TrsOptionError(s->options, "-data_label",
                             "is for a run without -tasks: each task has a label, -task_<name>_label"));
  chosen = (PetscBool)(given || s->tasks.named);
  for (int i = 0; i < 2; i++) {
    const TrsDatasetInfo *info;
    int label;

    if (!datasets[i]) continue;
    PetscCall(TrsDatasetGetInfo(datasets[i], &info));
    if (!chosen && info->label_names) s->label = info->label_names[0];
    chosen = (PetscBool)(chosen || info->has_labels);
    for (int t = 0; t < s->tasks.n; t++) PetscCall(find_label(s, info, t, given, &label));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_tasks(TrsSession *s)
{
  const int64_t *over_arch = NULL;
  int n = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetInts(s->options, "-over_arch", &n, &over_arch, NULL));
  PetscCall(TrsTaskConfigsFromOptions(s->options, n, over_arch, &s->tasks));
  PetscCall(TrsTaskMetricsCheck(&s->tasks, s->options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Find the groups that -metrics_group names in a dataset: the place of a feature, or /group. */
static PetscErrorCode find_group(const TrsDatasetInfo *info, const char *name, int *key)
{
  PetscFunctionBegin;
  *key = TRS_GROUP_OF_DATASET;
  if (strcmp(name, "/group") == 0) {
    PetscCheck(info->has_group, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s has no dataset /group, which -metrics_group names", info->path);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int k = 0; k < info->n_features; k++)
    if (strcmp(info->features[k], name) == 0) *key = k;
  PetscCheck(*key != TRS_GROUP_OF_DATASET, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-metrics_group %.100s: %s has no feature of this name, expected one, or /group", name,
             info->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Check that all data has the groups of -metrics_group. */
static PetscErrorCode choose_group(TrsSession *s)
{
  const TrsDataset datasets[2] = {s->train, s->eval};

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(s->options, "-metrics_group", &s->group, NULL));
  for (int i = 0; s->group && i < 2; i++) {
    const TrsDatasetInfo *info;
    int key;

    if (!datasets[i]) continue;
    PetscCall(TrsDatasetGetInfo(datasets[i], &info));
    PetscCall(find_group(info, s->group, &key));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionTables(TrsOptions options, TrsDataset dataset, TrsTableConfigs *tables)
{
  const TrsDatasetInfo *info;
  TrsDatasetFeatures features;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  features = (TrsDatasetFeatures){.n_features = info->n_features,
                                  .names = info->features,
                                  .num_embeddings = info->num_embeddings,
                                  .mean_lengths = info->mean_lengths,
                                  .has_weights = info->has_weights};
  PetscCall(TrsTableConfigsFromOptions(options, &features, tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode make_plan(TrsSession *s)
{
  const int64_t host_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
  TrsPlannerMachine machine = {.is_cuda = (PetscBool)(strcmp(s->device->name, "cuda") == 0),
                               .ddr_bytes = host_bytes};
  const TrsDatasetInfo *info;
  int64_t pod = 1, free_bytes;
  TrsPlanner planner;
  TrsStage before;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_PLAN, &before));
  PetscCall(TrsOptionsGetInt(s->options, "-topology_pod_size", &pod, NULL));
  machine.local_world_size = (int)(s->groups.local_world_size / pod);
  machine.ddr_bytes = host_bytes / machine.local_world_size;
  PetscCall(TrsDatasetGetInfo(s->train ? s->train : s->eval, &info));
  machine.num_dense = info->num_dense;
  if (machine.is_cuda) PetscCall(s->device->memory(&free_bytes, &machine.hbm_bytes));
  PetscCall(TrsPlannerCreate(s->comm, &planner));
  PetscCall(TrsPlannerSetFromOptions(planner, s->options));
  PetscCall(TrsPlannerSetTables(planner, &s->tables));
  PetscCall(TrsPlannerSetMachine(planner, &machine));
  PetscCall(TrsPlannerSetWriter(planner, TrsTextOutput));
  PetscCall(TrsPlannerSetDenseModel(planner, TrsModelParallelDenseBytes));
  PetscCall(TrsPlannerSetUp(planner));
  PetscCall(TrsPlannerSolve(planner, &s->plan));
  PetscCall(TrsPlannerDestroy(&planner));
  PetscCall(TrsStageSwitch(before, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A plan may count outputs of any type, but a run makes three. */
static PetscErrorCode check_outputs(const TrsSession *s)
{
  const char *name;

  PetscFunctionBegin;
  for (int t = 0; t < s->tables.n; t++) {
    const TrsTableConfig *table = &s->tables.table[t];
    const TrsDType dtype = TrsTableOutputDType(table);

    if (TrsDTypeBits(dtype) >= 16) continue;
    PetscCall(TrsOptionsObjectName(s->options, "table", table->name, "output_dtype", &name));
    PetscCall(TrsOptionError(s->options, name,
                             "pooled outputs of a run are fp32, fp16 or bf16, table \"%s\" asks for %s",
                             table->name, TrsDTypeName(dtype)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse quantised tables, and plans for them. They belong to -task predict. */
static PetscErrorCode refuse_quantised(const TrsSession *s)
{
  const char *name, *source = NULL;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(s->options, "-plan_input", &source, NULL));
  for (int t = 0; t < s->tables.n; t++) {
    const TrsTableConfig *table = &s->tables.table[t];
    const TrsTablePlan *plan = TrsShardingPlanFind(&s->plan, table->name);

    PetscCall(TrsOptionsObjectName(s->options, "table", table->name, "data_type", &name));
    if (TrsDTypeBits(table->data_type) <= 8)
      PetscCall(TrsOptionError(
          s->options, name,
          "table \"%s\" cannot be trained or evaluated as %s: train in fp32, fp16 or bf16, then give "
          "%s to -task predict",
          table->name, TrsDTypeName(table->data_type), TrsDTypeName(table->data_type)));
    PetscCheck(!plan || plan->compute_kernel < TRS_KERNEL_QUANT || source, PETSC_COMM_SELF, TRS_ERR_OPTION,
               "-plan_sharder quant plans for -task predict, not for training or evaluation");
    PetscCheck(!plan || plan->compute_kernel < TRS_KERNEL_QUANT, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: table \"%s\" has compute kernel %s, which is for -task predict", source, table->name,
               TrsComputeKernelName(plan->compute_kernel));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse a cache whose lines would not have the table's type. */
static PetscErrorCode check_precision(const TrsTableConfig *table)
{
  const TrsTableChoice *precision = &table->constraints.choice[TRS_CHOICE_CACHE_PRECISION];

  PetscFunctionBegin;
  PetscCheck(
      !precision->set || precision->value == (int64_t)table->data_type, PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
      "table \"%s\" is %s and its cache_precision %s: a cache keeps rows as the table has them, so "
      "that it does not change the numbers (-table_%s_cache_precision)",
      table->name, TrsDTypeName(table->data_type), TrsDTypeName((TrsDType)precision->value), table->name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuse a table's own cache options, or those of all tables, if this run would ignore them. */
static PetscErrorCode check_caches(const TrsSession *s)
{
  static const char *const keys[] = {"cache_load_factor", "cache_algorithm", "cache_reserved_memory",
                                     "cache_precision"};
  enum { TRS_N_CACHE_KEYS = sizeof(keys) / sizeof(keys[0]) };
  /* The planner may choose no cache. */
  const PetscBool choice = (PetscBool)(strcmp(s->device->name, "cuda") == 0);
  PetscBool any = PETSC_FALSE;

  PetscFunctionBegin;
  for (int t = 0; t < s->plan.n_tables; t++)
    any = (PetscBool)(any || s->plan.table[t].compute_kernel == TRS_KERNEL_FUSED_UVM_CACHING);
  for (int i = 0; i < TRS_N_CACHE_KEYS * s->tables.n; i++) {
    const TrsTableConfig *table = &s->tables.table[i / TRS_N_CACHE_KEYS];
    const TrsTablePlan *plan = TrsShardingPlanFind(&s->plan, table->name);
    const unsigned named = table->constraints.compute_kernels;
    const char *name, *source;

    if (!plan) continue;
    if (plan->compute_kernel == TRS_KERNEL_FUSED_UVM_CACHING) {
      PetscCall(check_precision(table));
      continue;
    }
    PetscCall(TrsOptionsObjectName(s->options, "table", table->name, keys[i % TRS_N_CACHE_KEYS], &name));
    PetscCall(TrsOptionsSource(s->options, name, &source));
    if (strcmp(source, "default") == 0) continue;
    if (choice && (!named || (named >> TRS_KERNEL_FUSED_UVM_CACHING) & 1u)) continue;
    if (any && strncmp(name, "-tables_", 8) == 0) continue;
    PetscCall(
        TrsOptionError(s->options, name,
                       "table \"%s\" has compute kernel %s, which has no cache: name fused_uvm_caching in "
                       "-table_%s_compute_kernels, or leave this out",
                       table->name, TrsComputeKernelName(plan->compute_kernel), table->name));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode create_model(TrsSession *s, PetscBool training, PetscBool quantised)
{
  const TrsDatasetInfo *info, *eval;
  TrsModelParallelConfig config;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(s->train ? s->train : s->eval, &info));
  if (s->eval) {
    PetscCall(TrsDatasetGetInfo(s->eval, &eval));
    PetscCheck(eval->num_dense == info->num_dense, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /dense has %d columns, %s has %d", eval->path, eval->num_dense, info->path,
               info->num_dense);
  }
  config = (TrsModelParallelConfig){.groups = &s->groups,
                                    .device = s->device,
                                    .compute = s->compute,
                                    .tables = &s->tables,
                                    .plan = &s->plan,
                                    .num_dense = info->num_dense,
                                    .max_batch = s->batch_size,
                                    .seed = s->seed,
                                    .training = training,
                                    .quantised = quantised};
  PetscCall(TrsModelParallelCreate(s->options, &config, &s->model));
  PetscCall(TrsModelParallelAddState(s->model, &s->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionCreateMachine(MPI_Comm comm, TrsOptions options, TrsSession *session)
{
  int64_t seed;

  PetscFunctionBegin;
  *session = (TrsSession){.options = options};
  PetscCallMPI(MPI_Comm_dup(comm, &session->comm));
  PetscCallMPI(MPI_Comm_rank(comm, &session->rank));
  PetscCallMPI(MPI_Comm_size(comm, &session->size));
  PetscCall(TrsOptionsGetInt(options, "-seed", &seed, NULL));
  session->seed = (uint64_t)seed;
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &session->batch_size, NULL));
  PetscCall(TrsAgree(session->comm, choose_isa(session)));
  PetscCall(choose_device(session));
  PetscCall(create_groups(session));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionOpen(MPI_Comm comm, TrsOptions options, PetscBool training, TrsSession *session)
{
  PetscFunctionBegin;
  PetscCall(TrsSessionCreateMachine(comm, options, session));
  PetscCall(open_datasets(session, training));
  PetscCall(read_tasks(session));
  PetscCall(choose_labels(session));
  PetscCall(choose_group(session));
  PetscCall(TrsSessionTables(options, session->train ? session->train : session->eval, &session->tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionBuild(TrsSession *session, PetscBool training, PetscBool quantised)
{
  const char *source = "the plan";

  PetscFunctionBegin;
  PetscCall(make_plan(session));
  PetscCall(TrsOptionsGetString(session->options, "-plan_input", &source, NULL));
  PetscCall(TrsTableChoicesFromPlan(session->options, &session->plan, source, &session->tables));
  PetscCall(check_outputs(session));
  if (quantised)
    PetscCall(TrsQuantCheckPlan(&session->plan, &session->tables, source));
  else
    PetscCall(refuse_quantised(session));
  PetscCall(check_caches(session));
  PetscCall(TrsMemoryCheck(session, training, quantised));
  PetscCall(create_model(session, training, quantised));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionCreate(MPI_Comm comm, TrsOptions options, PetscBool training, TrsSession *session)
{
  PetscFunctionBegin;
  PetscCall(TrsSessionOpen(comm, options, training, session));
  PetscCall(TrsSessionBuild(session, training, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionDestroy(TrsSession *session)
{
  PetscFunctionBegin;
  TrsStageObserve(NULL);
  PetscCall(TrsStateFree(&session->state));
  PetscCall(TrsModelParallelDestroy(&session->model));
  PetscCall(TrsShardingPlanFree(&session->plan));
  PetscCall(TrsTableConfigsFree(&session->tables));
  PetscCall(TrsTaskConfigsFree(&session->tasks));
  PetscCall(TrsDatasetClose(&session->eval));
  PetscCall(TrsDatasetClose(&session->train));
  PetscCall(TrsCommGroupsDestroy(&session->groups));
  PetscCallMPI(MPI_Comm_free(&session->comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The place of a feature in a dataset's key order. */
static PetscErrorCode find_key(const TrsDatasetInfo *info, const char *feature, const TrsTableConfig *table,
                               int *key)
{
  const int64_t rows = table->num_embeddings;

  PetscFunctionBegin;
  for (*key = 0; *key < info->n_features && strcmp(info->features[*key], feature) != 0; ++*key) continue;
  PetscCheck(*key < info->n_features, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s: /sparse has no feature '%s', which the model needs", info->path, feature);
  PetscCheck(table->id_map != TRS_ID_MAP_NONE || info->num_embeddings[*key] <= rows, PETSC_COMM_SELF,
             TRS_ERR_DATA, "%s: feature '%s' has ids below %" PRId64 ", its table only %" PRId64 " rows",
             info->largest_in[*key], feature, info->num_embeddings[*key], rows);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_labels(const TrsSession *session, const TrsDatasetInfo *info, TrsReader reader)
{
  TrsReaderLabel labels[TRS_MOST_TASKS];

  PetscFunctionBegin;
  for (int t = 0; t < session->tasks.n; t++) {
    const TrsTaskConfig *task = &session->tasks.task[t];

    labels[t] = (TrsReaderLabel){
        .kind = task->labels, .classes = task->classes, .may_be_nan = session->tasks.named};
    PetscCall(find_label(session, info, t, PETSC_FALSE, &labels[t].place));
  }
  PetscCall(TrsReaderSetLabels(reader, session->tasks.n, labels));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_groups(const TrsSession *session, const TrsDatasetInfo *info, TrsReader reader)
{
  int key;

  PetscFunctionBegin;
  if (!session->group) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(find_group(info, session->group, &key));
  PetscCall(TrsReaderSetGroup(reader, key));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionReader(TrsSession *session, PetscBool training, int64_t first_step,
                                TrsReader *reader)
{
  TrsDataset dataset = training ? session->train : session->eval;
  const TrsDatasetInfo *info;
  PetscBool weighted = PETSC_FALSE;
  TrsBoundsCheckMode *mode;
  TrsIdMapKind *map;
  int64_t *rows;
  int n = 0, *keys, *max_length;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  for (int t = 0; t < session->tables.n; t++) n += session->tables.table[t].n_features;
  PetscCall(PetscMalloc5(n, &keys, n, &rows, n, &mode, n, &map, n, &max_length));
  for (int t = 0, f = 0; t < session->tables.n; t++) {
    const TrsTableConfig *table = &session->tables.table[t];
    if (table->is_weighted) weighted = PETSC_TRUE;
    for (int k = 0; k < table->n_features; k++, f++) {
      PetscCall(find_key(info, table->features[k], table, &keys[f]));
      rows[f] = table->num_embeddings;
      map[f] = table->id_map;
      mode[f] = table->bounds_check_mode;
      max_length[f] = table->max_feature_lengths ? table->max_feature_lengths[k] : 0;
    }
  }
  PetscCall(TrsReaderCreate(session->comm, reader));
  PetscCall(TrsReaderSetFromOptions(*reader, session->options, training));
  PetscCall(TrsReaderSetDevice(*reader, session->device));
  PetscCall(TrsReaderSetDataset(*reader, dataset));
  PetscCall(TrsReaderSetFeatures(*reader, n, keys, rows, mode, weighted));
  PetscCall(TrsReaderSetIdMaps(*reader, map));
  PetscCall(TrsReaderSetMaxLengths(*reader, max_length));
  PetscCall(set_labels(session, info, *reader));
  PetscCall(set_groups(session, info, *reader));
  PetscCall(TrsReaderSetStart(*reader, first_step));
  PetscCall(TrsReaderSetUp(*reader));
  PetscCall(PetscFree5(keys, rows, mode, map, max_length));
  PetscFunctionReturn(PETSC_SUCCESS);
}
