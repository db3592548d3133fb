/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/task_train.h"

#include "core/clock.h"
#include "core/names.h"
#include "core/trace.h"
#include "report/banner.h"
#include "report/data.h"
#include "report/metrics.h"
#include "report/summary.h"
#include "run/task_eval.h"
#include "run/training.h"
#include "session/checkpoint_model.h"
#include "session/column_cuts.h"
#include "session/left_over.h"
#include "session/signals.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/*
  Limit on the time that a requested stop waits for the next average of the copies. Batch systems
  leave more time than this.
*/
enum { TRS_STOP_WAITS_S = 10 };

static PetscErrorCode read_options(TrsTraining *t, TrsOptions options)
{
  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-checkpoint_dir", &t->checkpoint_dir, NULL));
  PetscCall(TrsOptionsGetString(options, "-checkpoint_final", &t->checkpoint_final, NULL));
  PetscCall(TrsOptionsGetString(options, "-checkpoint_best", &t->checkpoint_best, NULL));
  PetscCall(TrsOptionsGetInt(options, "-checkpoint_every", &t->checkpoint_every, NULL));
  PetscCall(TrsOptionsGetInt(options, "-checkpoint_keep", &t->checkpoint_keep, NULL));
  PetscCall(TrsOptionsGetInt(options, "-eval_every", &t->eval_every, NULL));
  PetscCall(TrsOptionsGetInt(options, "-metrics_every", &t->metrics_every, NULL));
  PetscCall(TrsOptionsGetInt(options, "-metrics_window_samples", &t->metrics_window, NULL));
  PetscCall(TrsIncrementsFromOptions(options, &t->increments));
  PetscCall(TrsBesideFromOptions(options, &t->beside));
  PetscCall(TrsDeltasFromOptions(options, &t->deltas));
  PetscCall(TrsEarlyStoppingFromOptions(options, &t->early));
  PetscCall(TrsLearningRatesFromOptions(options, &t->rates));
  if (t->checkpoint_every && !t->checkpoint_dir)
    PetscCall(TrsOptionError(options, "-checkpoint_every", "needs -checkpoint_dir, the folder to write to"));
  if (t->early.stops && !t->eval_every)
    PetscCall(TrsOptionError(options, "-early_stopping_metric",
                             "needs -eval_every, the steps between the evaluations it watches"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The number of updates that the weights have seen after the reader's step `step`. Files, their
  names and messages use this number. The reader counts from the start again if a training resumes
  with other data or starts from other weights.
*/
static int64_t updates_at(const TrsTraining *t, int64_t step)
{
  return t->start.step + step - t->first_step;
}

/* If the total number of updates N is known, write " of N". Otherwise write "". */
static const char *of_total(const TrsTraining *t, char *text, size_t size)
{
  text[0] = '\0';
  if (t->total_steps < TRS_MOST_COUNT)
    (void)snprintf(text, size, " of %" PRId64, updates_at(t, t->total_steps));
  return text;
}

/* After the session has opened the evaluation data, check the options that need this data. */
static PetscErrorCode check_evaluation(TrsTraining *t)
{
  TrsOptions options = t->session.options;

  PetscFunctionBegin;
  if (t->session.eval) PetscFunctionReturn(PETSC_SUCCESS);
  if (t->eval_every)
    PetscCall(TrsOptionError(options, "-eval_every", "needs -data_eval, the data to evaluate on"));
  if (t->checkpoint_best)
    PetscCall(TrsOptionError(options, "-checkpoint_best",
                             "needs -data_eval, the data whose evaluation tells the best weights"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Add a step's predictions to the training's own metrics, as a TrsBatchObserver. */
static PetscErrorCode add_metrics(void *context, const TrsBatch *batch, const float *predictions,
                                  const double *losses, double seconds)
{
  const TrsTraining *t = (const TrsTraining *)context;

  PetscFunctionBegin;
  (void)losses;
  (void)seconds;
  PetscCall(TrsTaskRunningAdd(t->metrics, batch, predictions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set up the data, the pipeline and the measurements. */
static PetscErrorCode set_up_steps(TrsTraining *t)
{
  const TrsBatchObserver observer = {add_metrics, t};
  TrsSession *s = &t->session;

  PetscFunctionBegin;
  PetscCall(TrsSessionReader(s, PETSC_TRUE, t->first_step, &t->reader));
  if (s->follow) {
    PetscCall(TrsTrainingFollowSetUp(t));
  } else {
    PetscCall(TrsReaderSteps(t->reader, &t->total_steps, &t->per_epoch));
    PetscCall(TrsResultsSetInt(t->results, "steps_per_epoch", t->per_epoch));
  }
  PetscCall(TrsPipelineCreate(s->machine.groups.dense, s->options, s->model, t->reader,
                              t->start.step - t->first_step, &trs_stop_requested, &t->pipeline));
  if (t->metrics) PetscCall(TrsPipelineSetObserver(t->pipeline, &observer));
  TrsPipelineSetBusy(t->pipeline, &t->beside.busy);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check that all files can be written, find the runs to which existing files belong, and load the
  numbers that belong to this run.
*/
static PetscErrorCode set_up_outputs(TrsTraining *t)
{
  const unsigned kinds = 1u << TRS_OUTPUT_RESULTS | 1u << TRS_OUTPUT_FINAL | 1u << TRS_OUTPUT_BEST |
                         1u << TRS_OUTPUT_TRACE;
  TrsSession *s = &t->session;

  PetscFunctionBegin;
  PetscCall(TrsCheckpointTryNames(t->checkpoint_dir     ? t->checkpoint_dir
                                  : t->checkpoint_final ? t->checkpoint_final
                                                        : t->checkpoint_best,
                                  &s->state));
  PetscCall(TrsCheckpointTry(s->comm, t->checkpoint_final));
  PetscCall(TrsCheckpointTry(s->comm, t->checkpoint_best));
  PetscCall(TrsOutputsOpen(s->comm, s->options, kinds, &t->outputs));
  PetscCall(TrsOutputsClaim(&t->outputs, t->run_id));
  PetscCall(TrsHistoryStart(s, t->results, &t->progress, &t->outputs.file[TRS_OUTPUT_RESULTS], t->start.step,
                            &t->history));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode set_up(TrsTraining *t, MPI_Comm comm, TrsOptions options)
{
  TrsSession *s = &t->session;
  const char *output = NULL;
  double watchdog_s;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-output", &output, NULL));
  PetscCall(TrsOptionsGetReal(options, "-watchdog_seconds", &watchdog_s, NULL));
  PetscCall(read_options(t, options));
  PetscCall(TrsTrainingOpenFolder(t, comm, options));
  PetscCall(TrsDeltasOpenFolder(&t->deltas, comm, options, t->checkpoint_dir));
  PetscCall(TrsStartFind(comm, options, t->checkpoint_dir, &t->from));
  PetscCall(TrsFollowCreate(comm, options, t->from.resumed ? t->from.path : NULL, &t->follow));
  PetscCall(TrsResultsCreate(comm, output, &t->results));
  PetscCall(TrsSessionCreate(comm, options, PETSC_TRUE, t->follow, s));
  PetscCall(check_evaluation(t));
  PetscCall(TrsIncrementsCheck(&t->increments, s));
  PetscCall(TrsBesideCheck(&t->beside, s));
  PetscCall(TrsDeltasCheck(&t->deltas, s));
  if (s->eval) PetscCall(TrsRecallOpen(s, &t->recall));
  PetscCall(TrsReportBanner(s));
  PetscCall(TrsColumnCutsTell(s->comm, options, &s->tables, &s->plan));
  PetscCall(TrsReportAttributes(s, t->results));
  PetscCall(TrsEarlyStoppingFindTask(options, &s->tasks, &t->early));
  PetscCall(PetscCalloc3((size_t)s->tasks.n, &t->measured, (size_t)s->tasks.n, &t->evaluated,
                         (size_t)s->tasks.n, &t->ahead));
  if (t->metrics_every)
    PetscCall(TrsTaskRunningCreate(s->comm, &s->tasks, options, t->metrics_window, &t->metrics));
  PetscCall(TrsTrainingLoad(t));
  PetscCall(set_up_outputs(t));
  PetscCall(TrsIdReportStart(s, t->results, t->start.step, &t->ids));
  t->samples = t->start.samples_seen;
  t->done = t->metrics_done = t->first_step;
  PetscCall(TrsTraceStart(s->comm, options, t->start.step, s->machine.device,
                          &t->outputs.file[TRS_OUTPUT_TRACE], &t->trace));
  PetscCall(TrsKernelReportStart(&t->session, &t->kernels));
  PetscCall(set_up_steps(t));
  PetscCall(TrsWatchdogStart(watchdog_s, s->rank, &t->watchdog));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Texts of a TrsCheckpointInfo. */
typedef struct {
  char *options, *plan, *model;
} TrsInfoTexts;

/*
  Fill the description of the weights after this step, for a checkpoint or a delta: the position in
  the data, the options, the plan and the model. Free the texts with free_texts().
*/
static PetscErrorCode make_info(TrsTraining *t, TrsInfoTexts *texts, TrsCheckpointInfo *info)
{
  TrsSession *s = &t->session;
  const TrsDatasetInfo *data;

  PetscFunctionBegin;
  TrsWatchdogBeat(t->watchdog, updates_at(t, t->done));
  PetscCall(TrsModelParallelSynchronise(s->model));
  PetscCall(TrsOptionsText(s->options, &texts->options));
  PetscCall(TrsShardingPlanToJson(&s->plan, &texts->plan));
  PetscCall(TrsCheckpointModelText(s, &texts->model));
  *info = (TrsCheckpointInfo){.step = updates_at(t, t->done),
                              .run_step = t->done,
                              .global_batch = s->step_batch * s->size,
                              .epoch = t->done / t->per_epoch,
                              .epoch_steps = s->follow ? 0 : t->per_epoch,
                              .follows = (PetscBool)(s->follow != NULL),
                              .samples_seen = t->samples,
                              .options = texts->options,
                              .plan = texts->plan,
                              .model = texts->model,
                              .mapping = s->mapping,
                              .place = t->deltas.place};
  if (s->follow) {
    TrsTrainingFollowPlace(t, &info->follow_place);
  } else {
    PetscCall(TrsDatasetGetInfo(s->train, &data));
    info->data_samples = data->num_samples;
    info->data_hash = data->sample_hash;
  }
  PetscCall(PetscArraycpy(info->states_from, t->start.states_from, TRS_STATES_KINDS));
  PetscCall(PetscStrncpy(info->run_id, t->run_id, sizeof(info->run_id)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode free_texts(TrsInfoTexts *texts)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(texts->options));
  PetscCall(PetscFree(texts->plan));
  PetscCall(PetscFree(texts->model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Print a line about a checkpoint that is in place. */
static PetscErrorCode tell_checkpoint(const TrsTraining *t, const TrsCheckpointInfo *info, const char *file)
{
  MPI_Comm comm = t->session.comm;

  PetscFunctionBegin;
  PetscCall(PetscPrintf(comm, "checkpoint after step %" PRId64 ": %s", info->step, file));
  if (info->is_increment)
    PetscCall(PetscPrintf(comm, ", increment %" PRId64 " of the full one after step %" PRId64,
                          t->increments.place.number, t->increments.place.base_step));
  PetscCall(PetscPrintf(comm, "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The checkpoint beside the training is in place, or `ierr` is why it is not. */
static PetscErrorCode end_beside(TrsTraining *t, PetscErrorCode ierr)
{
  PetscFunctionBegin;
  PetscCall(TrsIncrementsWritten(&t->increments, ierr ? NULL : &t->beside.info));
  PetscCall(ierr);
  t->has_checkpoint = PETSC_TRUE;
  PetscCall(tell_checkpoint(t, &t->beside.info, t->checkpoint_dir));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* If a checkpoint is being written beside the training, wait for it. */
static PetscErrorCode wait_beside(TrsTraining *t)
{
  PetscFunctionBegin;
  if (!t->beside.writer) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(end_beside(t, TrsBesideWait(&t->beside, t->session.comm, t->folder)));
  TrsWatchdogBeat(t->watchdog, updates_at(t, t->done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTrainingAdvanceCheckpoint(TrsTraining *t, PetscBool busy)
{
  PetscBool written = PETSC_FALSE;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (!t->beside.writer || busy) PetscFunctionReturn(PETSC_SUCCESS);
  ierr = TrsBesideAdvance(&t->beside, t->session.comm, t->folder, &written);
  if (written || ierr) PetscCall(end_beside(t, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write a checkpoint into the folder, or begin to write it beside the training. */
static PetscErrorCode write_to_folder(TrsTraining *t, PetscBool beside, TrsCheckpointInfo *info)
{
  PetscFunctionBegin;
  PetscCall(wait_beside(t));
  PetscCall(TrsIncrementsChoose(&t->increments, &t->session, t->folder, info));
  if (!beside || info->is_increment) {
    PetscCall(TrsIncrementsWrite(&t->increments, &t->session, t->folder, info));
    t->has_checkpoint = PETSC_TRUE;
    PetscCall(tell_checkpoint(t, info, t->checkpoint_dir));
  } else {
    PetscCall(TrsBesideBegin(&t->beside, &t->session, t->folder, info));
    TrsIncrementsTaken(&t->increments, &t->session);
  }
  t->kept_at = t->done;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write a checkpoint to the file of this kind. For TRS_N_OUTPUTS, write it into the checkpoint
  folder. beside: a full one may be written there beside the training.
*/
static PetscErrorCode checkpoint(TrsTraining *t, TrsOutputKind kind, PetscBool beside)
{
  const char *file = kind == TRS_OUTPUT_FINAL ? t->checkpoint_final : t->checkpoint_best;
  TrsSession *s = &t->session;
  TrsTaskRunningNumbers metrics = {.n = 0};
  TrsCheckpointInfo info;
  TrsInfoTexts texts;

  PetscFunctionBegin;
  PetscCall(make_info(t, &texts, &info));
  info.evaluation_due = kind == TRS_N_OUTPUTS && t->evaluation_due;
  info.metrics_of = t->metrics_of;
  if (t->metrics) PetscCall(TrsTaskRunningSave(t->metrics, &metrics));
  info.metrics = (TrsCheckpointNumbers){metrics.n, metrics.value};
  info.metrics_exact = (TrsCheckpointNumbers){metrics.n_exact, metrics.exact};
  info.metrics_window = (TrsCheckpointNumbers){metrics.n_window, metrics.window};
  info.early_stopping = TrsEarlyStoppingSave(&t->early);
  PetscCall(TrsAgree(s->comm, TrsModelParallelListChanges(s->model, ~0u)));
  if (kind != TRS_N_OUTPUTS) {
    info.output = &t->outputs.file[kind];
    PetscCall(TrsCheckpointWrite(s->comm, file, &s->state, &info));
    PetscCall(tell_checkpoint(t, &info, file));
  } else {
    PetscCall(write_to_folder(t, beside, &info));
  }
  PetscCall(free_texts(&texts));
  TrsWatchdogBeat(t->watchdog, updates_at(t, t->done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Write a delta, if one is due after this step. */
static PetscErrorCode write_delta(TrsTraining *t)
{
  TrsCheckpointInfo info;
  TrsInfoTexts texts;

  PetscFunctionBegin;
  if (!t->deltas.every || t->done % t->deltas.every != 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(make_info(t, &texts, &info));
  PetscCall(TrsDeltasWrite(&t->deltas, &t->session, &info));
  PetscCall(free_texts(&texts));
  TrsWatchdogBeat(t->watchdog, updates_at(t, t->done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* If the checkpoint folder does not have the current weights yet, write them there. */
static PetscErrorCode keep_in_folder(TrsTraining *t)
{
  PetscFunctionBegin;
  PetscCall(wait_beside(t));
  if (t->checkpoint_dir && t->kept_at != t->done) PetscCall(checkpoint(t, TRS_N_OUTPUTS, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Keep the best weights. If their file cannot be written, still write them to the checkpoint folder,
  which may be on another disk.
*/
static PetscErrorCode keep_best(TrsTraining *t)
{
  const PetscErrorCode ierr = checkpoint(t, TRS_OUTPUT_BEST, PETSC_FALSE);

  PetscFunctionBegin;
  if (ierr) PetscCall(keep_in_folder(t));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Evaluate, and keep the weights if they are the best so far. If a stop is requested, the evaluation
  ends without a result, and *stopped is set to true on all ranks.
*/
static PetscErrorCode evaluate(TrsTraining *t, PetscBool *stopped)
{
  const int64_t updates = updates_at(t, t->done);
  const TrsTaskConfigs *tasks = &t->session.tasks;
  const TrsBatchObserver observer = {TrsRecallAdd, &t->recall};
  PetscBool keep;
  char what[64];

  PetscFunctionBegin;
  PetscCall(TrsModelParallelSynchronise(t->session.model));
  PetscCall(TrsIdReportRow(&t->ids, updates));
  PetscCall(TrsEvaluateSession(&t->session, NULL, t->recall.n ? &observer : NULL, t->evaluated, stopped));
  t->evaluation_due = *stopped;
  if (*stopped) PetscFunctionReturn(PETSC_SUCCESS);
  t->evaluated_at = t->done;
  PetscCall(TrsRecordMetrics(t->results, updates, tasks, t->evaluated));
  PetscCall(PetscSNPrintf(what, sizeof(what), "eval after step %" PRId64, updates));
  PetscCall(TrsReportMetrics(t->session.comm, what, tasks, t->evaluated));
  PetscCall(TrsRecallReport(&t->recall, t->session.comm, t->results));
  TrsWatchdogBeat(t->watchdog, updates_at(t, t->done));
  PetscCall(TrsEarlyStoppingAdd(&t->early, t->session.comm, updates, tasks, t->evaluated, &keep));
  if (keep && t->checkpoint_best) PetscCall(keep_best(t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute a row of the training's own metrics, and of its tables' ids, unless this step has its row.
*/
static PetscErrorCode compute_metrics(TrsTraining *t)
{
  PetscFunctionBegin;
  PetscCall(TrsIdReportRow(&t->ids, updates_at(t, t->done)));
  if (!t->metrics || t->metrics_done == t->done) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsTaskRunningCompute(t->metrics, t->measured));
  PetscCall(TrsRecordRunningMetrics(t->results, updates_at(t, t->done), &t->session.tasks, t->measured));
  TrsProgressMetrics(&t->progress, t->measured);
  t->metrics_done = t->done;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find out if a periodic checkpoint must be written after this step. A checkpoint has one copy of
  the tables. If the copies differ, the checkpoint waits until they are averaged. An additional
  average would change the weights, so a resumed run would differ from an uninterrupted one.
*/
static PetscErrorCode is_checkpoint_due(TrsTraining *t, PetscBool *due)
{
  const int64_t updates = updates_at(t, t->done), mean = TrsModelParallelNextMean(t->session.model, updates);

  PetscFunctionBegin;
  if (t->checkpoint_every && t->done % t->checkpoint_every == 0) t->checkpoint_due = PETSC_TRUE;
  *due = (PetscBool)(t->checkpoint_due && mean == updates);
  if (t->checkpoint_due && !*due && !t->told_of_mean) {
    t->told_of_mean = PETSC_TRUE;
    PetscCall(PetscPrintf(t->session.comm,
                          "the checkpoint due after step %" PRId64
                          " follows the next mean of the copies, after step %" PRId64
                          " (-replica_sync_every), and so do later ones\n",
                          updates, PetscMin(mean, updates_at(t, t->total_steps))));
  }
  if (*due) t->checkpoint_due = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Make a requested stop wait until the copies are averaged. An additional average would change the
  weights. The signal may come shortly before the job is killed, so the stop waits only if the
  average is near.
*/
static PetscErrorCode wait_for_mean(TrsTraining *t, TrsStepResult *result)
{
  const int64_t updates = updates_at(t, t->done), mean = TrsModelParallelNextMean(t->session.model, updates);
  double left_s = (double)(mean - updates) * t->progress.steps_s /
                  (double)PetscMax(t->done - t->first_step, 1);

  PetscFunctionBegin;
  if (!result->stop || mean == updates || !t->checkpoint_dir) PetscFunctionReturn(PETSC_SUCCESS);
  if (!t->told_of_stop) {
    t->told_of_stop = PETSC_TRUE;
    PetscCallMPI(MPI_Bcast(&left_s, 1, MPI_DOUBLE, 0, t->session.comm));
    t->stop_waits = (PetscBool)(left_s <= TRS_STOP_WAITS_S && mean <= updates_at(t, t->total_steps));
    PetscCall(PetscPrintf(t->session.comm,
                          t->stop_waits
                              ? "the stop follows the next mean of the copies, after step %" PRId64
                                " (-replica_sync_every)\n"
                              : "the stop does not wait for the next mean of the copies, after step %" PRId64
                                " (-replica_sync_every): a resumed run has an additional mean\n",
                          mean));
  }
  if (t->stop_waits) result->stop = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write everything that is due after a step. If the history cannot be written, still write the
  checkpoint. It may be on another disk, and it is more valuable.
*/
static PetscErrorCode write_due(TrsTraining *t)
{
  PetscErrorCode ierr;
  PetscBool due;

  PetscFunctionBegin;
  PetscCall(write_delta(t));
  PetscCall(is_checkpoint_due(t, &due));
  if (!due) {
    PetscCall(TrsHistoryStep(&t->history, t->done - t->first_step));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* A resumed run counts from the checkpoint on. */
  PetscCall(TrsIdReportRow(&t->ids, updates_at(t, t->done)));
  ierr = TrsHistoryCheckpoint(&t->history, t->done - t->first_step);
  /* At the end of the training nothing is left beside which the file could be written. */
  PetscCall(checkpoint(t, TRS_N_OUTPUTS, (PetscBool)(t->beside.wanted && t->done < t->total_steps)));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* End the training because the loss is not finite. */
static PetscErrorCode refuse_loss(const TrsSession *session, const TrsStepResult *result)
{
  const char *unchecked, *loss = isnan(result->loss) ? "nan" : "infinite";

  PetscFunctionBegin;
  PetscCheck(!result->bad_numbers, PETSC_COMM_SELF, TRS_ERR_DATA,
             "the loss of step %" PRId64 " is %s: its batch has %" PRId64
             " number%s not finite or out of range, which -data_check warning let pass",
             result->step, loss, result->bad_numbers, TrsPlural(result->bad_numbers, "s"));
  PetscCall(TrsReportUnchecked(session, &unchecked));
  SETERRQ(PETSC_COMM_SELF, TRS_ERR_NOT_FINITE,
          "the loss of step %" PRId64
          " is %s: lower -dense_learning_rate or -embedding_learning_rate, or clip gradients "
          "(-embedding_max_gradient)%s",
          result->step, loss, unchecked);
}

/*
  Finish a step: record its numbers, and do everything that is due. If a requested stop ends an
  evaluation, result->stop is set.
*/
static PetscErrorCode after_step(TrsTraining *t, TrsStepResult *result, double step_s)
{
  const int64_t before = t->done;
  const TrsDatasetInfo *info;
  TrsFollowPlace place;
  TrsStepResult news = *result;

  PetscFunctionBegin;
  PetscCall(TrsDatasetGetInfo(t->session.train, &info));
  news.step = updates_at(t, before);
  if (t->told_bad_ids) news.bad_ids = 0;
  if (t->told_bad_numbers) news.bad_numbers = 0;
  PetscCall(TrsReportBadData(&t->session, info, &news));
  t->told_bad_ids = (PetscBool)(t->told_bad_ids || result->bad_ids);
  t->told_bad_numbers = (PetscBool)(t->told_bad_numbers || result->bad_numbers);
  if (!isfinite(result->loss)) {
    PetscCall(wait_beside(t)); /* it is of an earlier step, and good */
    PetscCall(refuse_loss(&t->session, &news));
  }
  t->done = result->step + 1;
  t->samples += result->global_batch;
  if (t->session.follow) {
    t->position = result->position + result->global_batch;
    TrsTrainingFollowPlace(t, &place);
    TrsProgressWhere(&t->progress, place.taken, place.file[0] ? place.file : "-data_train");
  }
  PetscCall(TrsRecordStep(t->results, news.step, result, &t->rates, step_s));
  if (t->metrics) {
    PetscCall(TrsTaskRunningStep(t->metrics, result->global_batch, t->progress.steps_s + step_s));
    if (t->done % t->metrics_every == 0) PetscCall(compute_metrics(t));
  }
  PetscCall(TrsProgressStep(&t->progress, result, step_s));
  TrsWatchdogBeat(t->watchdog, updates_at(t, t->done));
  PetscCall(TrsTrainingAdvanceCheckpoint(t, result->busy));
  PetscCall(wait_for_mean(t, result));
  t->evaluation_due = (PetscBool)(t->session.eval && (t->done == t->total_steps ||
                                                      (t->eval_every && t->done % t->eval_every == 0)));
  if (t->evaluation_due && t->done < t->total_steps && !result->stop) PetscCall(evaluate(t, &result->stop));
  /*
    Compute the last row of metrics before the last checkpoint. If the run is killed before its end,
    a resumed run has no step left in which to compute it.
  */
  if (t->done == t->total_steps || TrsEarlyStoppingIsOver(&t->early)) PetscCall(compute_metrics(t));
  if (!result->stop) PetscCall(write_due(t));
  TrsWatchdogBeat(t->watchdog, updates_at(t, t->done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Take new files after a step, or wait for them. If a bad file ends the run, first write the
  results, and a checkpoint to the checkpoint folder.
*/
static PetscErrorCode follow(TrsTraining *t, TrsStepResult *result, PetscBool *more)
{
  const PetscErrorCode ierr = TrsTrainingFollow(t, result, more);
  PetscErrorCode of_history;

  PetscFunctionBegin;
  if ((ierr == TRS_ERR_DATA || ierr == TRS_ERR_NO_INPUT) && t->done > t->first_step) {
    of_history = TrsHistoryCheckpoint(&t->history, t->done - t->first_step);
    PetscCall(keep_in_folder(t));
    PetscCall(of_history);
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Do a step. If its data is bad, which all ranks know, a checkpoint that was begun beside the
  earlier steps still gets its place.
*/
static PetscErrorCode do_step(TrsTraining *t, TrsStepResult *result, PetscBool *more)
{
  const PetscErrorCode ierr = TrsPipelineProgress(t->pipeline, result, more);

  PetscFunctionBegin;
  if (ierr == TRS_ERR_DATA || ierr == TRS_ERR_NO_INPUT) PetscCall(wait_beside(t));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode train(TrsTraining *t, PetscBool *stopped)
{
  TrsStepResult result = {.stop = PETSC_FALSE};
  PetscBool more = PETSC_TRUE;

  PetscFunctionBegin;
  PetscCall(TrsProgressStart(&t->session, t->total_steps, t->per_epoch, t->first_step,
                             t->start.step - t->first_step, &t->progress));
  if (t->evaluation_due && t->done < t->total_steps) PetscCall(evaluate(t, &result.stop));
  while (more && !result.stop && !TrsEarlyStoppingIsOver(&t->early)) {
    double start_s;
    int64_t before, now, steps;

    if (t->session.follow) PetscCall(TrsTrainingEvaluateAhead(t, &result.stop));
    if (result.stop) break;
    start_s = TrsClock();

    PetscCall(TrsReaderSteps(t->reader, &steps, NULL));
    if (t->done < steps) TrsTraceStepBegin(updates_at(t, t->done));
    PetscCall(TrsKernelReportStep(&t->kernels, t->done - t->first_step));
    TrsMemoryUse(&before, NULL);
    PetscCall(do_step(t, &result, &more));
    TrsMemoryUse(&now, NULL);
    TrsTraceStepEnd();
    if (t->done - t->first_step >= TRS_WARM_UP_STEPS) t->allocations += now - before;
    if (more) PetscCall(after_step(t, &result, TrsClock() - start_s));
    if (t->session.follow) PetscCall(follow(t, &result, &more));
  }
  *stopped = result.stop;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Record the number of allocations in the steps after the warm-up, without evaluations and
  checkpoints. It is 0 if batches do not grow.
*/
static PetscErrorCode record_allocations(TrsTraining *t)
{
  int64_t most;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(&t->allocations, &most, 1, MPI_INT64_T, MPI_MAX, t->session.comm));
  PetscCall(TrsResultsSetInt(t->results, "allocations_after_warm_up", most));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  If the training reached its end, make its last evaluation. If early stopping ended it, print why.
  If a requested stop ended the evaluation, *stopped is set. A resumed run then makes the
  evaluation.
*/
static PetscErrorCode conclude(TrsTraining *t, PetscBool *stopped)
{
  char why[256], total[32];

  PetscFunctionBegin;
  if (TrsEarlyStoppingIsOver(&t->early)) {
    TrsEarlyStoppingText(&t->early, why, sizeof(why));
    PetscCall(PetscPrintf(t->session.comm,
                          "stopped early after step %" PRId64 "%s: %s (-early_stopping_patience)\n",
                          updates_at(t, t->done), of_total(t, total, sizeof(total)), why));
    PetscCall(TrsResultsSetText(t->results, "stopped_early", why));
  } else if (t->session.eval && (t->evaluation_due || t->evaluated_at != t->done)) {
    PetscCall(evaluate(t, stopped));
    if (*stopped) PetscCall(keep_in_folder(t));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Write the last checkpoints before anything else that can fail, namely the last evaluation and
  files of numbers. `complete` is true if the training reached its end or early stopping ended it.
  If the same command is repeated with -resume, it then finds a training that has ended.
*/
static PetscErrorCode keep_weights(TrsTraining *t, PetscBool complete, PetscBool stopped)
{
  PetscErrorCode of_history, of_final = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(wait_beside(t));
  PetscCall(TrsBesideReport(&t->beside, t->session.comm, t->results));
  of_history = TrsHistoryCheckpoint(&t->history, t->done - t->first_step);
  if (t->checkpoint_final && complete) of_final = checkpoint(t, TRS_OUTPUT_FINAL, PETSC_FALSE);
  if (of_final || stopped || t->done > t->first_step) PetscCall(keep_in_folder(t));
  PetscCall(of_final);
  PetscCall(of_history);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Report the steps. If this start made no steps, keep the summary of the earlier start. */
static PetscErrorCode summarise(TrsTraining *t)
{
  PetscFunctionBegin;
  if (t->done == t->first_step && t->history.has_summary) {
    PetscCall(PetscPrintf(t->session.comm,
                          "trained on 0 samples: the run had reached its end after step %" PRId64 "\n",
                          updates_at(t, t->done)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(record_allocations(t));
  PetscCall(TrsReportSummary(&t->session, &t->progress, t->results));
  PetscCall(TrsIdReportRow(&t->ids, updates_at(t, t->done)));
  PetscCall(TrsIdReportSummary(&t->ids));
  if (t->session.follow) PetscCall(TrsTrainingFollowReport(t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode run(void *state, MPI_Comm comm, TrsOptions options)
{
  TrsTraining *t = (TrsTraining *)state;
  const TrsDatasetInfo *info;
  PetscBool stopped = PETSC_FALSE, complete;
  char text[32];

  PetscFunctionBegin;
  PetscCall(set_up(t, comm, options));
  PetscCall(train(t, &stopped));
  PetscCall(summarise(t));
  PetscCall(TrsDatasetGetInfo(t->session.train, &info));
  PetscCall(TrsReportBadInput(&t->session, info, t->reader, "train"));
  PetscCall(compute_metrics(t));
  if (t->metrics && t->done > t->first_step)
    PetscCall(TrsReportRunningMetrics(t->session.comm, &t->session.tasks, t->measured));
  complete = (PetscBool)!stopped;
  PetscCall(keep_weights(t, complete, stopped));
  if (complete) PetscCall(conclude(t, &stopped));
  PetscCall(TrsHistoryEnd(&t->history, t->done - t->first_step));
  PetscCall(TrsTraceFinish(&t->trace));
  PetscCall(TrsKernelReportFinish(&t->kernels));
  PetscCall(TrsOutputsReport(&t->outputs, PETSC_TRUE, t->has_checkpoint ? t->checkpoint_dir : NULL));
  if (stopped)
    SETERRQ(PETSC_COMM_SELF, TRS_ERR_STOPPED, "stopped on request after step %" PRId64 "%s: %s",
            updates_at(t, t->done), of_total(t, text, sizeof(text)),
            t->checkpoint_dir                 ? "run again with -resume to go on"
            : complete && t->checkpoint_final ? "the training was complete"
                                              : "nothing was saved: there is no -checkpoint_dir");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode destroy(void *training)
{
  TrsTraining *t = (TrsTraining *)training;

  PetscFunctionBegin;
  /* close the folder, so that the next run can open it */
  PetscCall(TrsBesideEnd(&t->beside));
  PetscCall(TrsDeltasClose(&t->deltas));
  PetscCall(TrsIncrementsFree(&t->increments));
  PetscCall(TrsCheckpointFolderClose(&t->folder));
  PetscCall(TrsStartFree(&t->from));
  PetscCall(TrsWatchdogStop(&t->watchdog));
  PetscCall(TrsPipelineDestroy(&t->pipeline));
  PetscCall(TrsReaderDestroy(&t->reader));
  PetscCall(TrsTraceClose());
  PetscCall(TrsTaskRunningDestroy(&t->metrics));
  PetscCall(PetscFree3(t->measured, t->evaluated, t->ahead));
  PetscCall(PetscFree(t->metrics_of));
  PetscCall(TrsIdReportFree(&t->ids));
  PetscCall(TrsRecallFree(&t->recall));
  PetscCall(TrsLearningRatesFree(&t->rates));
  PetscCall(TrsCheckpointInfoFree(&t->start));
  PetscCall(TrsResultsDestroy(&t->results));
  PetscCall(TrsOutputsClose(&t->outputs));
  PetscCall(TrsSessionDestroy(&t->session));
  PetscCall(TrsFollowDestroy(&t->follow));
  PetscCall(PetscFree(t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsRunTrain(MPI_Comm comm, TrsOptions options)
{
  TrsTraining *t;

  PetscFunctionBegin;
  PetscCall(PetscNew(&t));
  t->kept_at = t->evaluated_at = -1;
  PetscCall(TrsRunAndFree(t, &t->watchdog, run, destroy, comm, options));
  PetscFunctionReturn(PETSC_SUCCESS);
}
