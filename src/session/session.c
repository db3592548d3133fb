/* SPDX-License-Identifier: BSD-3-Clause */
#include "session/session.h"

#include "api/machine_plan.h"
#include "api/memory_check.h"
#include "compute/timed_ops.h"
#include "core/names.h"
#include "data/label.h"
#include "session/session_mapping.h"
#include "session/text_output.h"
#include "train/metrics/task_metrics.h"
#include "train/sample_blocks.h"

#include <string.h>

static PetscErrorCode open_datasets(TrsSession *s, PetscBool training)
{
  const char *const *train = NULL, *const *eval = NULL;
  int n_train = 0, n_eval = 0;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetStrings(s->options, "-data_train", &n_train, &train, NULL));
  PetscCall(TrsOptionsGetStrings(s->options, "-data_eval", &n_eval, &eval, NULL));
  PetscCheck(!training || train || s->follow, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-data_train is missing: training needs a dataset (HDF5, see input/FORMAT.md)");
  PetscCheck(training || eval, PETSC_COMM_SELF, TRS_ERR_OPTION,
             "-data_eval is missing: evaluation needs a dataset (HDF5, see input/FORMAT.md)");
  if (s->follow)
    PetscCall(TrsFollowOpenData(s->follow, n_train, train, &s->train));
  else if (training)
    PetscCall(TrsDatasetOpen(s->comm, n_train, train, &s->train));
  if (eval) PetscCall(TrsDatasetOpen(s->comm, n_eval, eval, &s->eval));
  if (training) PetscCall(TrsReaderChooseDense(s->options, s->train));
  if (eval) PetscCall(TrsReaderChooseDense(s->options, s->eval));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the label of a task in a dataset. told: the user gave -data_label, which messages mention.
*/
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
  Choose the labels: those of the tasks, or that of -data_label, given here or in the checkpoint's
  training. By default, choose the first label of the training data, or of the evaluation data if
  there is no training data. All datasets must have the chosen labels.
*/
static PetscErrorCode choose_labels(TrsSession *s)
{
  const TrsDataset datasets[2] = {s->train, s->eval};
  const PetscBool of_model = (PetscBool)(TrsOptionsModelOf(s->options, "-data_label") != NULL);
  const TrsDatasetInfo *eval;
  PetscBool given, chosen;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(s->options, "-data_label", &s->label, &given));
  /* if the data has only one label and it has no name, it is the model's label */
  if (of_model && s->eval) {
    PetscCall(TrsDatasetGetInfo(s->eval, &eval));
    if (!eval->label_names) s->label = NULL;
  }
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

/* Find the groups that -metrics_group names in a dataset: the index of a feature, or /group. */
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

/* Check that all datasets have the groups that -metrics_group names. */
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

PetscErrorCode TrsSessionTables(TrsOptions options, TrsDataset dataset, PetscBool training,
                                TrsTableConfigs *tables)
{
  const TrsDatasetInfo *info;
  TrsDatasetFeatures features;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  features = (TrsDatasetFeatures){.n_features = info->n_features,
                                  .names = info->features,
                                  .num_embeddings = info->num_embeddings,
                                  .mean_lengths = info->mean_lengths,
                                  .has_weights = info->has_weights,
                                  .has_unsigned_ids = info->has_unsigned_ids,
                                  .may_exceed = (PetscBool)!training};
  PetscCall(TrsTableConfigsFromOptions(options, &features, tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if the session has data to evaluate on. */
static PetscBool evaluates(const TrsSession *s)
{
  return (PetscBool)(s->eval || (s->follow && TrsFollowEvaluates(s->follow)));
}

static PetscErrorCode create_model(TrsSession *s, PetscBool training, PetscBool quantised)
{
  const TrsDatasetInfo *info, *eval;
  TrsModelParallelConfig config;
  TrsModelParallel model;
  int64_t delta_every = 0, full_every = 1, snapshot_bytes = 0;
  PetscBool async = PETSC_FALSE;

  PetscFunctionBegin;
  if (training) PetscCall(TrsOptionsGetInt(s->options, "-delta_every", &delta_every, NULL));
  if (training) PetscCall(TrsOptionsGetInt(s->options, "-checkpoint_full_every", &full_every, NULL));
  if (training) PetscCall(TrsOptionsGetBool(s->options, "-checkpoint_async", &async, NULL));
  if (async) PetscCall(TrsOptionsGetInt(s->options, "-checkpoint_async_bytes", &snapshot_bytes, NULL));
  PetscCall(TrsDatasetGetInfo(s->train ? s->train : s->eval, &info));
  if (s->eval) {
    PetscCall(TrsDatasetGetInfo(s->eval, &eval));
    PetscCheck(eval->num_dense == info->num_dense, PETSC_COMM_SELF, TRS_ERR_DATA,
               "%s: /dense has %d column%s, %s has %d", eval->path, eval->num_dense,
               TrsPlural(eval->num_dense, "s"), info->path, info->num_dense);
  }
  config = (TrsModelParallelConfig){.groups = &s->machine.groups,
                                    .shards = &s->machine.shards,
                                    .owners = s->machine.owners,
                                    .device = s->machine.device,
                                    .compute = s->machine.compute,
                                    .tables = &s->tables,
                                    .plan = &s->plan,
                                    .num_dense = info->num_dense,
                                    .max_batch = s->batch_size,
                                    .accumulate = training ? s->step_batch / s->batch_size : 1,
                                    .seed = s->seed,
                                    .training = training,
                                    .quantised = quantised,
                                    .keeps_embeddings = s->keeps_embeddings,
                                    .evaluates = evaluates(s),
                                    .notes_changes = (unsigned)(delta_every > 0) << TRS_CHANGES_OF_DELTAS |
                                                     (unsigned)(full_every > 1) << TRS_CHANGES_OF_INCREMENTS,
                                    .snapshot_bytes = snapshot_bytes};
  PetscCall(TrsModelParallelCreate(s->options, &config, &model));
  /* set only when the model is complete, because an incomplete model cannot be destroyed */
  s->model = model;
  PetscCall(TrsModelParallelAddState(s->model, &s->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Limit the time that a rank waits for others. It must end a little before the watchdog would end
  the rank, because the message of a wait says more about a hang. -comm_wait_seconds takes
  precedence.
*/
static PetscErrorCode limit_waits(TrsOptions options)
{
  double watchdog_s;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetReal(options, "-watchdog_seconds", &watchdog_s, NULL));
  (void)TrsCommWaitAtMost(watchdog_s > 0 ? 0.8 * watchdog_s : TRS_COMM_WAIT_SECONDS);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionNeedLabels(const TrsSession *session)
{
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  if (!session->eval) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsDatasetGetInfo(session->eval, &info));
  PetscCheck(info->has_labels, PETSC_COMM_SELF, TRS_ERR_DATA,
             "%s has no dataset /labels, which an evaluation needs", info->path);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* With -log_view_kernels, use kernels whose calls can be timed (report/kernels.h). */
static PetscErrorCode time_kernels(TrsSession *session)
{
  PetscBool wanted;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(session->options, "-log_view_kernels", &wanted, NULL));
  if (wanted) session->machine.compute = TrsComputeTimed(session->machine.compute, session->machine.device);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionOpen(MPI_Comm comm, TrsOptions options, PetscBool training, TrsFollow follow,
                              TrsSession *session)
{
  int64_t seed;

  PetscFunctionBegin;
  *session = (TrsSession){.options = options, .follow = follow};
  PetscCallMPI(MPI_Comm_dup(comm, &session->comm));
  PetscCallMPI(MPI_Comm_rank(comm, &session->rank));
  PetscCallMPI(MPI_Comm_size(comm, &session->size));
  PetscCall(TrsOptionsGetInt(options, "-seed", &seed, NULL));
  session->seed = (uint64_t)seed;
  PetscCall(TrsOptionsGetInt(options, "-batch_size", &session->batch_size, NULL));
  PetscCall(TrsReaderStepBatch(options, &session->step_batch));
  PetscCall(limit_waits(options));
  PetscCall(TrsMachineCreate(session->comm, options, &session->machine));
  if (training) PetscCall(time_kernels(session));
  PetscCall(open_datasets(session, training));
  if (training) PetscCall(TrsSessionNeedLabels(session));
  PetscCall(read_tasks(session));
  PetscCall(choose_labels(session));
  PetscCall(choose_group(session));
  PetscCall(TrsSessionTables(options, training ? session->train : session->eval, training, &session->tables));
  PetscCall(TrsSessionCheckMappings(session));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Choose the number of samples per rank in an evaluation's batch. With -reproducible, a global batch
  consists of whole blocks of the dense layers. Then a sample has the same position in the same
  block for any number of ranks and any batch size. The loss of pairs depends on the batch, so it
  uses the batch of a training step.
*/
static PetscErrorCode choose_eval_batch(TrsSession *s, PetscBool quantised)
{
  int64_t unit = TRS_BLOCK_SAMPLES;
  PetscBool reproducible;
  int loss;

  PetscFunctionBegin;
  s->eval_batch = s->batch_size;
  PetscCall(TrsOptionsGetBool(s->options, "-reproducible", &reproducible, NULL));
  PetscCall(TrsOptionsGetEnum(s->options, "-loss", &loss, NULL));
  if (!reproducible || quantised) PetscFunctionReturn(PETSC_SUCCESS);
  for (int size = s->size; size % 2 == 0 && unit > 1; size /= 2) unit /= 2;
  s->eval_batch = loss == TRS_PAIR_LOSS_BCE ? ((s->batch_size - 1) / unit + 1) * unit : s->step_batch;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionBuild(TrsSession *session, PetscBool training, PetscBool quantised)
{
  TrsPlanWishes wishes = {
      .describe_dense = TrsModelParallelDescribeDense, .write = TrsTextOutput, .quantised = quantised};
  TrsBatchShape shape = {.training = training, .evaluates = evaluates(session)};
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  PetscCall(choose_eval_batch(session, quantised));
  PetscCall(TrsDatasetGetInfo(session->train ? session->train : session->eval, &info));
  shape.batch_size = training ? session->step_batch : session->eval_batch;
  wishes.num_dense = info->num_dense;
  shape.num_dense = info->num_dense;
  shape.id_bytes = info->value_bytes;
  shape.n_labels = info->n_labels;
  if (!session->follow)
    shape.batch_size = PetscMin(shape.batch_size, (info->num_samples - 1) / session->size + 1);
  PetscCall(TrsMachinePlan(&session->machine, &wishes, &session->tables, &session->plan));
  PetscCall(TrsMemoryCheck(&session->machine, &session->tables, &session->plan, &shape, quantised));
  PetscCall(create_model(session, training, quantised));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionCreate(MPI_Comm comm, TrsOptions options, PetscBool training, TrsFollow follow,
                                TrsSession *session)
{
  PetscFunctionBegin;
  PetscCall(TrsSessionOpen(comm, options, training, follow, session));
  PetscCall(TrsSessionBuild(session, training, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionDestroy(TrsSession *session)
{
  PetscFunctionBegin;
  if (!session->options) PetscFunctionReturn(PETSC_SUCCESS); /* the session was never opened */
  PetscCall(TrsEvaluationDestroy(&session->evaluation));
  PetscCall(TrsReaderDestroy(&session->eval_reader));
  PetscCall(TrsStateFree(&session->state));
  PetscCall(TrsModelParallelDestroy(&session->model));
  PetscCall(TrsShardingPlanFree(&session->plan));
  PetscCall(TrsTableConfigsFree(&session->tables));
  PetscCall(TrsTaskConfigsFree(&session->tasks));
  PetscCall(TrsDatasetClose(&session->eval));
  PetscCall(TrsDatasetClose(&session->train));
  PetscCall(TrsMachineDestroy(&session->machine));
  PetscCallMPI(MPI_Comm_free(&session->comm));
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
  int64_t n_segments;
  int key;

  PetscFunctionBegin;
  if (!session->group) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(find_group(info, session->group, &key));
  PetscCall(TrsOptionsGetInt(session->options, "-metrics_segments", &n_segments, NULL));
  PetscCall(TrsReaderSetGroup(reader, key, n_segments));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Create a reader for a dataset. The caller must then set it up (TrsReaderSetUp()). */
static PetscErrorCode create_reader(TrsSession *session, TrsDataset dataset, PetscBool training,
                                    TrsReader *reader)
{
  const TrsDatasetInfo *info;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(dataset, &info));
  PetscCall(TrsReaderCreate(session->comm, reader));
  PetscCall(TrsReaderSetFromOptions(*reader, session->options, training));
  if (!training) PetscCall(TrsReaderSetBatch(*reader, session->eval_batch));
  PetscCall(TrsReaderSetDevice(*reader, session->machine.device));
  PetscCall(TrsReaderSetDataset(*reader, dataset));
  PetscCall(TrsReaderSetTables(*reader, info, &session->tables, PETSC_TRUE));
  PetscCall(set_labels(session, info, *reader));
  PetscCall(set_groups(session, info, *reader));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionReader(TrsSession *session, PetscBool training, int64_t first_step,
                                TrsReader *reader)
{
  PetscFunctionBegin;
  PetscCall(create_reader(session, training ? session->train : session->eval, training, reader));
  if (training && session->follow)
    PetscCall(TrsFollowSetReader(session->follow, *reader, first_step, &session->tables));
  else
    PetscCall(TrsReaderSetStart(*reader, first_step));
  PetscCall(TrsReaderSetUp(*reader));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Evaluate the model on the data of session->eval_reader. */
static PetscErrorCode evaluate(TrsSession *session, TrsOptions overlap, const TrsEvaluationTarget *target,
                               const TrsBatchObserver *observer, const volatile int *stop,
                               TrsMetricValues *values, PetscBool *stopped)
{
  PetscFunctionBegin;
  PetscCall(TrsEvaluationCreate(session->machine.groups.dense, overlap, session->model, session->eval_reader,
                                target, observer, stop, &session->evaluation));
  PetscCall(TrsEvaluationRun(session->evaluation, values, stopped));
  PetscCall(TrsEvaluationDestroy(&session->evaluation));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionEvaluate(TrsSession *session, TrsOptions overlap, const TrsEvaluationTarget *target,
                                  const TrsBatchObserver *observer, const volatile int *stop,
                                  TrsMetricValues *values, PetscBool *stopped)
{
  PetscFunctionBegin;
  PetscCall(TrsSessionReader(session, PETSC_FALSE, 0, &session->eval_reader));
  PetscCall(evaluate(session, overlap, target, observer, stop, values, stopped));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSessionEvaluateAhead(TrsSession *session, const TrsFollowAhead *ahead,
                                       const volatile int *stop, TrsMetricValues *values, PetscBool *stopped)
{
  const TrsEvaluationTarget target = {.n_total = ahead->n, .metrics = session->options};

  PetscFunctionBegin;
  PetscCall(create_reader(session, session->train, PETSC_FALSE, &session->eval_reader));
  PetscCall(TrsReaderSetPart(session->eval_reader, ahead->first, ahead->n));
  PetscCall(TrsReaderSetUp(session->eval_reader));
  PetscCall(evaluate(session, session->options, &target, NULL, stop, values, stopped));
  PetscCall(TrsReaderDestroy(&session->eval_reader));
  PetscFunctionReturn(PETSC_SUCCESS);
}
