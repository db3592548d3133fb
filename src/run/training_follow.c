/* SPDX-License-Identifier: BSD-3-Clause */
/* A training that follows a folder: it takes new files between steps, and waits for them. */
#include "core/clock.h"
#include "core/names.h"
#include "core/trace.h"
#include "report/metrics.h"
#include "run/training.h"

#include <inttypes.h>

PetscErrorCode TrsTrainingFollowSetUp(TrsTraining *t)
{
  const char *path;
  PetscBool given;

  PetscFunctionBegin;
  t->total_steps = TRS_MOST_COUNT;
  PetscCall(TrsOptionsGetInt(t->session.options, "-steps", &t->total_steps, &given));
  if (!given) t->total_steps = TRS_MOST_COUNT;
  t->per_epoch = TRS_MOST_COUNT;
  t->position = t->start.follow_place.position;
  TrsFollowCount(t->session.follow, &path, NULL, NULL);
  PetscCall(PetscClassIdRegister("trshard follow", &t->wait_class));
  PetscCall(PetscLogEventRegister("waiting for data", t->wait_class, &t->wait_event));
  PetscCall(PetscPrintf(t->session.comm, "%-10s %s: takes its files in the order of their names\n", "follow",
                        path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the number of further steps for which the stream has samples. If the stream has ended, also
  set the total number of steps.
*/
static PetscErrorCode steps_left(TrsTraining *t, int64_t *left)
{
  int64_t steps;

  PetscFunctionBegin;
  PetscCall(TrsReaderSteps(t->reader, &steps, NULL));
  if (TrsFollowHasEnded(t->session.follow))
    t->total_steps = t->progress.total_steps = PetscMax(steps, t->done);
  *left = steps - t->done;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* True if no further file can be needed. */
static PetscBool needs_no_file(const TrsTraining *t)
{
  return (PetscBool)(TrsFollowHasEnded(t->session.follow) || t->done >= t->total_steps);
}

/* Take files that are already there, so that the pipeline does not run dry. */
static PetscErrorCode look_ahead(TrsTraining *t)
{
  TrsFollowNews news = TRS_FOLLOW_FILE;
  int64_t left = 0;

  PetscFunctionBegin;
  PetscCall(steps_left(t, &left));
  while (news == TRS_FOLLOW_FILE && !needs_no_file(t) && left < TrsReaderAhead(t->reader) &&
         t->done + left < t->total_steps) {
    PetscCall(TrsFollowTake(t->session.follow, t->position, PETSC_FALSE, &news));
    PetscCall(steps_left(t, &left));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Print that the training waits. There is at most one such line in each wait, and only if a progress
  line is due.
*/
static PetscErrorCode tell_wait(TrsTraining *t, PetscBool *told)
{
  const char *path;
  int due;

  PetscFunctionBegin;
  due = !*told && TrsProgressIsDue(&t->progress);
  PetscCallMPI(MPI_Bcast(&due, 1, MPI_INT, 0, t->session.comm));
  if (!due) PetscFunctionReturn(PETSC_SUCCESS);
  *told = PETSC_TRUE;
  TrsFollowCount(t->session.follow, &path, NULL, NULL);
  PetscCall(TrsProgressLine(&t->progress, "waiting for data", path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* If the training stops before the copies of its tables are averaged, print a line. */
static PetscErrorCode tell_no_mean(TrsTraining *t)
{
  const int64_t updates = t->start.step + t->done - t->first_step;

  PetscFunctionBegin;
  if (t->checkpoint_dir && TrsModelParallelNextMean(t->session.model, updates) != updates)
    PetscCall(PetscPrintf(t->session.comm,
                          "the stop does not wait for the next mean of the copies (-replica_sync_every): a "
                          "resumed run makes an additional mean\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Wait until the stream has a batch or has ended, or until a rank is asked to stop. The ranks sleep
  while they wait. All earlier batches must have been trained on, and all files that were due must
  have been written.
*/
static PetscErrorCode wait_for_data(TrsTraining *t, TrsStepResult *result, PetscBool *more)
{
  const int64_t updates = t->start.step + t->done - t->first_step;
  const double start_s = TrsClock();
  TrsFollowNews news = TRS_FOLLOW_NOTHING;
  PetscBool told = PETSC_FALSE, busy;
  int64_t left = 0;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(t->wait_event, 0, 0, 0, 0));
  while (left <= 0 && news != TRS_FOLLOW_END && news != TRS_FOLLOW_STOPPED) {
    PetscCall(TrsFollowTake(t->session.follow, t->position, PETSC_TRUE, &news));
    PetscCall(steps_left(t, &left));
    TrsWatchdogBeat(t->watchdog, updates);
    if (t->beside.writer) {
      PetscCall(TrsBesideIsBusy(&t->beside, t->session.comm, &busy));
      PetscCall(TrsTrainingAdvanceCheckpoint(t, busy));
    }
    if (news == TRS_FOLLOW_NOTHING) {
      PetscCall(tell_wait(t, &told));
      PetscCall(TrsHistoryStep(&t->history, t->done - t->first_step));
    }
  }
  PetscCall(PetscLogEventEnd(t->wait_event, 0, 0, 0, 0));
  if (TrsTraceWants(updates))
    TrsTraceRecord(TRS_TRACE_MAIN, TRS_TRACE_DATA, updates, start_s, TrsClock(), -1);
  t->waited_s += TrsClock() - start_s;
  t->n_waits++;
  if (news == TRS_FOLLOW_STOPPED) {
    result->stop = PETSC_TRUE;
    PetscCall(tell_no_mean(t));
  }
  *more = (PetscBool)(left > 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTrainingFollow(TrsTraining *t, TrsStepResult *result, PetscBool *more)
{
  int64_t left = 0;

  PetscFunctionBegin;
  if (*more) {
    if (!result->stop) PetscCall(look_ahead(t));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* The pipeline may have run dry before look_ahead() found a file. */
  PetscCall(steps_left(t, &left));
  *more = (PetscBool)(left > 0);
  if (!*more && !needs_no_file(t)) PetscCall(wait_for_data(t, result, more));
  if (*more || result->stop) PetscFunctionReturn(PETSC_SUCCESS);
  t->evaluation_due = (PetscBool)(t->session.eval && t->evaluated_at != t->done);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTrainingEvaluateAhead(TrsTraining *t, PetscBool *stopped)
{
  const int64_t updates = t->start.step + t->done - t->first_step;
  const TrsTaskConfigs *tasks = &t->session.tasks;
  TrsFollowAhead ahead;
  int64_t left = 0, end;
  char what[TRS_FOLLOW_NAME + 32];

  PetscFunctionBegin;
  if (TrsFollowEvaluates(t->session.follow)) PetscCall(steps_left(t, &left));
  if (left <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  /* the samples of the next step; the last step of a stream may have fewer */
  end = t->position + t->session.step_batch * t->session.size;
  while (!*stopped && TrsFollowNextAhead(t->session.follow, t->position, end, &ahead)) {
    PetscCall(TrsModelParallelSynchronise(t->session.model));
    PetscCall(TrsSessionEvaluateAhead(&t->session, &ahead, &trs_stop_requested, t->ahead, stopped));
    if (*stopped) break;
    PetscCall(TrsRecordAhead(t->results, updates, ahead.file, ahead.position, tasks, t->ahead));
    PetscCall(PetscSNPrintf(what, sizeof(what), "eval ahead of %s", ahead.file));
    PetscCall(TrsReportMetrics(t->session.comm, what, tasks, t->ahead));
    TrsWatchdogBeat(t->watchdog, updates);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsTrainingFollowPlace(const TrsTraining *t, TrsFollowPlace *place)
{
  TrsFollowFindPlace(t->session.follow, t->position, place);
}

PetscErrorCode TrsTrainingFollowReport(TrsTraining *t)
{
  int64_t n_taken, n_bad;
  TrsFollowPlace place;

  PetscFunctionBegin;
  TrsTrainingFollowPlace(t, &place);
  TrsFollowCount(t->session.follow, NULL, &n_taken, &n_bad);
  PetscCall(PetscPrintf(t->session.comm,
                        "%-10s %" PRId64 " file%s taken, %" PRId64 " set aside; waited %.1f s in %" PRId64
                        " wait%s for data%s%s\n",
                        "follow", n_taken, TrsPlural(n_taken, "s"), n_bad, t->waited_s, t->n_waits,
                        TrsPlural(t->n_waits, "s"), TrsFollowHasEnded(t->session.follow) ? "; ended by " : "",
                        TrsFollowEnd(t->session.follow)));
  PetscCall(TrsResultsSetInt(t->results, "follow_position", place.position));
  PetscCall(TrsResultsSetText(t->results, "follow_file", place.file));
  PetscCall(TrsResultsSetInt(t->results, "follow_files_taken", n_taken));
  PetscCall(TrsResultsSetInt(t->results, "follow_files_set_aside", n_bad));
  PetscFunctionReturn(PETSC_SUCCESS);
}
