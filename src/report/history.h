/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The history of a training over all its starts, as the results keep it. Rows that earlier starts of
  the run wrote are taken over. Each start has a row in /starts. The file is written often enough
  that a killed job leaves its curve.

  Rank 0 holds and writes everything. It decides by its own clock when to write. Other ranks take no
  part in writes that depend on time, so none of their steps depends on a clock.
*/
#pragma once

#include "core/events.h"
#include "io/results.h"
#include "report/progress.h"
#include "session/session.h"

typedef struct {
  const TrsSession *session; /* borrowed, as the next two */
  TrsResults results;
  const TrsProgress *progress;
  int64_t index;      /* row of this start in /starts */
  int64_t first_step; /* updates that the weights had seen at the start */
  double time_s;      /* time of the start, in seconds since 1970 */
  double start_s;     /* clock at the start */
  /* The file has the summary of an earlier start, on all ranks. A start without steps keeps it. */
  PetscBool has_summary;
  /* Milliseconds of a step in each stage, mean over ranks, when last gathered. NaN before that. */
  double stage_ms[TRS_STAGE_NONE];
  char *plan;     /* JSON, or "" if the plan is that of the previous start */
  double every_s; /* -output_every */
  double due_s;   /* clock at which the file must be written in any case */
  /* The clock from which on another write keeps to its share of the time. */
  double free_s;
} TrsHistory;

/*
  TrsHistoryStart - Take over the rows that the run has written before, and begin a row of /starts.

  Collective; call this before readers start. Rows of steps that are trained again are left out. A
  file that cannot be taken over is kept as another run's, and a line says so.

  In:     session, results, progress  borrowed until TrsHistoryEnd(); the progress starts later
          step              updates that the weights have seen
  InOut:  output            the place of the results, claimed; only rank 0's counts
  Errors (agreed): those of TrsOutputClaim()
*/
PetscErrorCode TrsHistoryStart(const TrsSession *session, TrsResults results, const TrsProgress *progress,
                               TrsOutput *output, int64_t step, TrsHistory *history);

/*
  Write the file after a step if it is due. A failure is only a warning, and the write is tried
  again. steps counts from this start. Not collective.
*/
PetscErrorCode TrsHistoryStep(TrsHistory *history, int64_t steps);

/*
  TrsHistoryCheckpoint - Write the file before a checkpoint is written.

  If a run is killed between the two writes, the file has surplus rows, whose steps are trained
  again, and no gap. Collective. A file of more than 64 MiB is left for later if writing it would
  take more than 1 % of the time.

  Errors (agreed): those of TrsResultsWrite()
*/
PetscErrorCode TrsHistoryCheckpoint(TrsHistory *history, int64_t steps);

/*
  Write the file for the last time, before the last checkpoints. Collective. Errors (agreed):
  those of TrsResultsWrite().
*/
PetscErrorCode TrsHistoryEnd(TrsHistory *history, int64_t steps);
