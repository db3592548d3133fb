/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/names.h"
#include "run/training.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Refuse -checkpoint_set_aside if it would move the file of -init_from. */
static PetscErrorCode check_aside(const TrsTraining *t, TrsOptions options)
{
  const char *init_from = NULL, *slash;
  struct stat folder, of_file;
  char *path;
  int same;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetString(options, "-init_from", &init_from, NULL));
  if (!init_from) PetscFunctionReturn(PETSC_SUCCESS);
  slash = strrchr(init_from, '/');
  PetscCall(PetscStrallocpy(slash ? init_from : ".", &path));
  if (slash) path[PetscMax(slash - init_from, 1)] = '\0';
  same = stat(t->checkpoint_dir, &folder) == 0 && stat(path, &of_file) == 0 &&
         folder.st_dev == of_file.st_dev && folder.st_ino == of_file.st_ino;
  PetscCall(PetscFree(path));
  if (same)
    PetscCall(TrsOptionError(options, "-init_from",
                             "is among the checkpoints that -checkpoint_set_aside moves: copy it to another "
                             "place first"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTrainingOpenFolder(TrsTraining *t, MPI_Comm comm, TrsOptions options)
{
  TrsRunWait wait = {.stop = &trs_stop_requested};
  const char *aside = NULL;
  PetscBool resume;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetBool(options, "-resume", &resume, NULL));
  PetscCall(TrsOptionsGetString(options, "-checkpoint_set_aside", &aside, NULL));
  PetscCall(TrsOptionsGetReal(options, "-checkpoint_lock_seconds", &wait.seconds, NULL));
  if (aside && (resume || !t->checkpoint_dir))
    PetscCall(TrsOptionError(options, "-checkpoint_set_aside",
                             resume ? "is for a new run: leave it out, or -resume"
                                    : "needs -checkpoint_dir, the folder of the earlier checkpoints"));
  if (aside && (!aside[0] || aside[0] == '.' || strchr(aside, '/')))
    PetscCall(TrsOptionError(options, "-checkpoint_set_aside",
                             "\"%s\" is not the name of a new folder within -checkpoint_dir", aside));
  if (!t->checkpoint_dir) PetscFunctionReturn(PETSC_SUCCESS);
  if (aside) PetscCall(check_aside(t, options));
  /* A new run does not wait for another job, because it cannot use the other job's files. */
  if (!resume) wait.seconds = 0;
  PetscCall(TrsCheckpointFolderOpen(comm, t->checkpoint_dir, &trs_folder_checkpoints, (int)t->checkpoint_keep,
                                    &wait, &t->folder));
  PetscCall(TrsCheckpointFolderClaim(t->folder, resume, aside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the position in the data at which a resumed training continues. If the global batch changed
  (for example, with the number of ranks) or the steps per epoch changed (-drop_last), steps are
  counted anew. Whole epochs remain whole epochs. If the data grew or shrank, the samples already
  seen still count as seen. Within an epoch, the first new step is the step with the first unseen
  sample, so that no sample is left out.
*/
static PetscErrorCode find_place(TrsTraining *t)
{
  const int64_t batch = t->session.step_batch * t->session.size, old_batch = t->start.global_batch;
  const TrsDatasetInfo *info;
  int64_t epoch_steps, old_epoch_steps, epochs, rest;
  PetscBool drop_last, same_size;

  PetscFunctionBegin;
  t->first_step = t->start.run_step;
  if (t->start.follows && !t->session.follow)
    PetscCall(TrsOptionError(t->session.options, "-resume",
                             "%s is of a training that follows a folder: give -data_follow", t->from.path));
  if (old_batch == 0 || t->session.follow) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetBool(t->session.options, "-drop_last", &drop_last, NULL));
  PetscCall(TrsDatasetGetInfo(t->session.train, &info));
  epoch_steps = (info->num_samples + (drop_last ? 0 : batch - 1)) / batch;
  old_epoch_steps = t->start.epoch_steps;
  if (old_epoch_steps == 0) /* an earlier version wrote the file */
    old_epoch_steps = PetscMax((info->num_samples + (drop_last ? 0 : old_batch - 1)) / old_batch, 1);
  same_size = (PetscBool)(t->start.data_samples == 0 || t->start.data_samples == info->num_samples);
  epochs = t->start.run_step / old_epoch_steps;
  rest = t->start.run_step % old_epoch_steps * old_batch;
  if (!same_size) {
    const int64_t used = PetscMin(PetscMax(epoch_steps, 1) * batch, info->num_samples);

    rest += epochs * PetscMin(old_epoch_steps * old_batch, t->start.data_samples);
    epochs = rest / used;
    rest %= used;
  }
  PetscCheck(epochs <= TRS_MOST_COUNT / PetscMax(epoch_steps, 1), PETSC_COMM_SELF, TRS_ERR_DATA,
             "the checkpoint's run_step %" PRId64 " is in epoch %" PRId64 ", too far for epochs of %" PRId64
             " steps",
             t->start.run_step, epochs, epoch_steps);
  t->first_step = epochs * epoch_steps + PetscMin(rest / batch, epoch_steps);
  if (same_size ? old_batch == batch && old_epoch_steps == epoch_steps : t->first_step == t->start.run_step)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscPrintf(t->session.comm,
                        "%-10s an epoch had %" PRId64 " step%s of %" PRId64 " sample%s and has %" PRId64
                        " of %" PRId64 ": step %" PRId64 " is step %" PRId64 " of epoch %" PRId64 "\n",
                        "resume", old_epoch_steps, TrsPlural(old_epoch_steps, "s"), old_batch,
                        TrsPlural(old_batch, "s"), epoch_steps, batch, t->start.step + 1,
                        t->first_step % PetscMax(epoch_steps, 1) + 1,
                        t->first_step / PetscMax(epoch_steps, 1) + 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the name of what the metrics measure: the label, or the tasks in order. */
static PetscErrorCode name_metrics(TrsTraining *t)
{
  const TrsTaskConfigs *tasks = &t->session.tasks;
  size_t size = 1, used = 0;

  PetscFunctionBegin;
  if (!tasks->named) {
    PetscCall(PetscStrallocpy(t->session.label ? t->session.label : "", &t->metrics_of));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (int i = 0; i < tasks->n; i++) size += strlen(tasks->task[i].name) + 1;
  PetscCall(PetscMalloc1(size, &t->metrics_of));
  for (int i = 0; i < tasks->n; i++)
    used += (size_t)snprintf(t->metrics_of + used, size - used, "%s%s", i ? "," : "", tasks->task[i].name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* For a resumed training, load the numbers that a checkpoint has in addition to the weights. */
static PetscErrorCode load_memory(TrsTraining *t, const char *path)
{
  const char *were_of = t->start.metrics_of_read;
  const TrsTaskRunningNumbers numbers = {.n = t->start.metrics.n,
                                         .n_exact = t->start.metrics_exact.n,
                                         .n_window = t->start.metrics_window.n,
                                         .value = t->start.metrics.value,
                                         .exact = t->start.metrics_exact.value,
                                         .window = t->start.metrics_window.value};
  PetscBool same = PETSC_TRUE;

  PetscFunctionBegin;
  if (t->metrics && t->start.metrics.n && were_of && strcmp(were_of, t->metrics_of) != 0)
    PetscCall(PetscPrintf(t->session.comm, "%-10s lifetime metrics were of %s and begin anew\n", "resume",
                          were_of[0] ? were_of : "a label without a name"));
  else if (t->metrics && t->start.metrics.n)
    PetscCall(TrsTaskRunningLoad(t->metrics, path, &numbers));
  if (t->start.early_stopping.n)
    PetscCall(TrsEarlyStoppingLoad(&t->early, path, &t->start.early_stopping, &same));
  if (!same && t->early.stops)
    PetscCall(PetscPrintf(
        t->session.comm, "%-10s early stopping watched another metric and starts to count anew\n", "resume"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Choose the run's id. A resumed training keeps its id. */
static PetscErrorCode name_run(TrsTraining *t, PetscBool resumed)
{
  PetscFunctionBegin;
  if (resumed) PetscCall(PetscStrncpy(t->run_id, t->start.run_id, sizeof(t->run_id)));
  if (!t->run_id[0]) PetscCall(PetscStrncpy(t->run_id, TrsCheckpointFolderRun(t->folder), sizeof(t->run_id)));
  if (!t->run_id[0]) PetscCall(TrsRunIdMake(t->session.comm, t->run_id));
  TrsCheckpointFolderName(t->folder, t->run_id);
  PetscCall(TrsResultsSetText(t->results, "run_id", t->run_id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTrainingLoad(TrsTraining *t)
{
  const PetscBool resumed = t->from.resumed;

  PetscFunctionBegin;
  PetscCall(name_metrics(t));
  PetscCall(TrsStartStateLoad(&t->session, &t->from, t->results, &t->start));
  PetscCall(TrsReportDroppedIds(&t->session));
  PetscCall(name_run(t, resumed));
  PetscCall(TrsDeltasStart(&t->deltas, &t->session, &t->from, &t->start, t->run_id));
  PetscCall(TrsIncrementsStart(&t->increments, &t->session, &t->from, &t->start));
  t->has_checkpoint = resumed;
  if (resumed) PetscCall(find_place(t));
  /* The last evaluation of a shorter run is due only if this run also evaluates at that step. */
  t->evaluation_due = (PetscBool)(resumed && t->start.evaluation_due && t->session.eval && t->eval_every &&
                                  t->first_step % t->eval_every == 0);
  if (resumed) PetscCall(load_memory(t, t->from.path));
  PetscFunctionReturn(PETSC_SUCCESS);
}
