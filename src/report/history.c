/* SPDX-License-Identifier: BSD-3-Clause */
#include "report/history.h"

#include "core/clock.h"
#include "core/names.h"
#include "core/print.h"
#include "core/version.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Seconds of training for each second of writing the file. */
static const double share = 99.0;

/* The first file is written after this number of seconds. */
static const double first_write_s = 5.0;

/*
  A file of at most this size is written at every checkpoint. Writing the checkpoint itself takes
  longer than writing such a file.
*/
static const int64_t small_bytes = (int64_t)64 << 20;

/* --- the row of /starts --- */

/*
  Write the path of a stage's column: /starts/dense_forward_ms for "dense forward", /starts/i_o_ms
  for "I/O".
*/
static void column_name(const char *stage, char *path, size_t size)
{
  snprintf(path, size, "starts/%s_ms", stage);
  for (char *c = path + strlen("starts/"); *c; c++)
    *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
}

/* Write the current values into this start's row. Only rank 0 calls this. */
static PetscErrorCode write_row(const TrsHistory *h, int64_t steps)
{
  const TrsSession *s = h->session;
  TrsResults r = h->results;
  struct rusage usage;
  char path[64];

  PetscFunctionBegin;
  PetscCall(TrsResultsDropLast(r, "starts/", "starts/start", h->index));
  PetscCall(TrsResultsAppendInt(r, "starts/start", h->index));
  PetscCall(TrsResultsAppend(r, "starts/time", h->time_s));
  PetscCall(TrsResultsAppendInt(r, "starts/first_step", h->first_step));
  PetscCall(TrsResultsAppendInt(r, "starts/steps", steps));
  PetscCall(TrsResultsAppend(r, "starts/elapsed_s", TrsClock() - h->start_s));
  PetscCall(TrsResultsAppend(r, "starts/samples_per_s",
                             h->progress->steps ? TrsProgressSpeed(h->progress) : (double)NAN));
  getrusage(RUSAGE_SELF, &usage);
  PetscCall(TrsResultsAppend(r, "starts/peak_memory_bytes", 1024.0 * (double)usage.ru_maxrss));
  PetscCall(TrsResultsAppendInt(r, "starts/ranks", s->size));
  PetscCall(TrsResultsAppendInt(r, "starts/hosts", s->machine.groups.n_hosts));
  PetscCall(TrsResultsAppendInt(r, "starts/global_batch", s->step_batch * s->size));
  PetscCall(TrsResultsAppendText(r, "starts/commit", TrsVersionCommit()));
  PetscCall(TrsResultsAppendText(r, "starts/plan", h->plan));
  for (int i = 0; i < TRS_STAGE_NONE; i++) {
    column_name(TrsStageName((TrsStage)i), path, sizeof(path));
    PetscCall(TrsResultsAppend(r, path, h->stage_ms[i]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Set the ms per step in each stage from the seconds of n_ranks ranks together. */
static void set_stages(TrsHistory *h, const double *seconds, int n_ranks, int64_t steps)
{
  for (int i = 0; i < TRS_STAGE_NONE && steps > 0; i++)
    h->stage_ms[i] = 1e3 * seconds[i] / n_ranks / (double)steps;
}

/* Write this start's row with the stages' times until now. Collective. */
static PetscErrorCode complete_row(TrsHistory *h, int64_t steps)
{
  const TrsSession *s = h->session;
  double seconds[TRS_N_STAGES], sum[TRS_N_STAGES] = {0};

  PetscFunctionBegin;
  PetscCall(TrsStageTimes(seconds, PETSC_FALSE));
  PetscCallMPI(MPI_Reduce(seconds, sum, TRS_N_STAGES, MPI_DOUBLE, MPI_SUM, 0, s->comm));
  if (s->rank != 0) PetscFunctionReturn(PETSC_SUCCESS);
  set_stages(h, sum, s->size, steps);
  h->gathered = PETSC_TRUE;
  PetscCall(write_row(h, steps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- the start --- */

/*
  On rank 0, load the rows of earlier starts, except the rows of steps that will be trained again.
*/
static PetscErrorCode take_over(TrsHistory *h, TrsOutput *output, int64_t step)
{
  /* The step in a row is the number of updates before this step. */
  const TrsResultsRange ranges[] = {{"train", "train/step", step},
                                    {"eval", "eval/step", step + 1},
                                    {"ahead", "ahead/step", step},
                                    {"metrics", "metrics/step", step + 1},
                                    {"ids", "ids/step", step + 1},
                                    {"starts", "starts/start", INT64_MAX},
                                    {"cache", "cache/rank", INT64_MAX},
                                    {"stages", NULL, 0},
                                    {"exchanges", NULL, 0},
                                    {"memory", NULL, 0}};
  PetscErrorCode ierr = TrsResultsLoad(h->results, (int)(sizeof(ranges) / sizeof(ranges[0])), ranges);
  int64_t last;

  PetscFunctionBegin;
  /* Only TRS_ERR_DATA shows that the file is bad. */
  if (ierr != PETSC_SUCCESS && ierr != TRS_ERR_DATA) PetscCall(ierr);
  if (ierr == TRS_ERR_DATA) {
    TrsPrint(stderr, "trshard: warning: %s; the run's history begins anew, that file is kept\n",
             TrsErrorMessage());
    TrsErrorClear();
    PetscCall(TrsOutputDisown(output));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  last = TrsResultsLastInt(h->results, "train/step", -1) + 1;
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "%-10s %s: goes on after %" PRId64 " update%s\n", "history",
                        output->path, last, TrsPlural(last, "s")));
  if (last < step)
    PetscCall(PetscPrintf(PETSC_COMM_SELF,
                          "%-10s no rows of the %" PRId64
                          " updates from there to the checkpoint: the run ended "
                          "before they were written\n",
                          "", step - last));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode begin_row(TrsHistory *h)
{
  char *plan;

  PetscFunctionBegin;
  h->time_s = TrsClockOf(CLOCK_REALTIME);
  h->index = TrsResultsRows(h->results, "starts/start");
  for (int i = 0; i < TRS_STAGE_NONE; i++) h->stage_ms[i] = (double)NAN;
  PetscCall(TrsShardingPlanToJson(&h->session->plan, &plan));
  PetscCall(PetscStrallocpy(strcmp(plan, TrsResultsLastText(h->results, "starts/plan")) == 0 ? "" : plan,
                            &h->plan));
  PetscCall(PetscFree(plan));
  PetscCall(write_row(h, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHistoryStart(const TrsSession *session, TrsResults results, const TrsProgress *progress,
                               TrsOutput *output, int64_t step, TrsHistory *h)
{
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  *h = (TrsHistory){.session = session, .results = results, .progress = progress, .first_step = step};
  h->start_s = TrsClock();
  PetscCall(TrsOptionsGetReal(session->options, "-output_every", &h->every_s, NULL));
  h->interval_s = PetscMin(first_write_s, h->every_s);
  h->due_s = h->start_s + h->interval_s;
  PetscCall(TrsResultsSetOutput(results, output));
  if (session->rank == 0 && output->path) {
    if (TrsOutputIsOwn(output)) ierr = take_over(h, output, step);
    if (ierr == PETSC_SUCCESS) ierr = begin_row(h);
    h->has_summary = (PetscBool)(TrsResultsRows(results, "stages/measured_ms") > 0);
  }
  PetscCallMPI(MPI_Bcast(&h->has_summary, 1, MPI_INT, 0, session->comm));
  PetscCall(TrsAgree(session->comm, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --- writing --- */

/* Write the file on rank 0, and set the earliest time of the next write. */
static PetscErrorCode write_alone(TrsHistory *h)
{
  const double begin_s = TrsClock();
  PetscErrorCode ierr;
  TrsStage before;
  double end_s;

  PetscFunctionBegin;
  PetscCall(TrsStageSwitch(TRS_STAGE_IO, &before));
  ierr = TrsResultsWriteAlone(h->results);
  PetscCall(TrsStageSwitch(before, NULL));
  end_s = TrsClock();
  h->free_s = end_s + share * (end_s - begin_s);
  h->interval_s = PetscMin(2 * h->interval_s, h->every_s);
  h->due_s = PetscMax(end_s + h->interval_s, h->free_s);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHistoryStep(TrsHistory *h, int64_t steps)
{
  double seconds[TRS_N_STAGES];

  PetscFunctionBegin;
  if (!h->plan || h->every_s <= 0 || TrsClock() < h->due_s) PetscFunctionReturn(PETSC_SUCCESS);
  if (!h->gathered) {
    PetscCall(TrsStageTimes(seconds, PETSC_FALSE));
    set_stages(h, seconds, 1, steps);
  }
  PetscCall(write_row(h, steps));
  if (write_alone(h) != PETSC_SUCCESS) {
    TrsPrint(stderr, "trshard: warning: %s; the training goes on, and the next write tries again\n",
             TrsErrorMessage());
    TrsErrorClear();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHistoryCheckpoint(TrsHistory *h, int64_t steps)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = complete_row(h, steps);
  if (!ierr && h->plan && (TrsResultsBytes(h->results) <= small_bytes || TrsClock() >= h->free_s))
    ierr = write_alone(h);
  PetscCall(TrsAgree(h->session->comm, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsHistoryEnd(TrsHistory *h, int64_t steps)
{
  PetscFunctionBegin;
  PetscCall(complete_row(h, steps));
  PetscCall(TrsResultsWrite(h->results));
  PetscCall(PetscFree(h->plan));
  PetscFunctionReturn(PETSC_SUCCESS);
}
