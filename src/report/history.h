/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The history of a training over all its starts, stored in the results. Rows from earlier starts of
  the run are taken over. Each start has a row in /starts. The file is written often enough that the
  curve survives if the job is killed.

  Rank 0 holds and writes everything. Its own clock decides when to write. Other ranks take no part
  in writes that depend on time, so their steps do not depend on a clock.
*/
#pragma once

#include "core/events.h"
#include "io/results.h"
#include "report/progress.h"
#include "session/session.h"

typedef struct {
  const TrsSession *session; /* borrowed, like the next two */
  TrsResults results;
  const TrsProgress *progress;
  int64_t index;      /* row of this start in /starts */
  int64_t first_step; /* number of updates before this start */
  double time_s;      /* time of the start, in seconds since 1970 */
  double start_s;     /* clock at the start */
  /* The file has the summary of an earlier start, on all ranks. A start without steps keeps it. */
  PetscBool has_summary;
  /* Milliseconds per step in each stage, mean over ranks, when last gathered. NaN before that. */
  double stage_ms[TRS_STAGE_NONE];
  char *plan;     /* JSON, or "" if the previous start had the same plan */
  double every_s; /* -output_every */
  double due_s;   /* clock after which the file must be written */
  /* The clock after which another write stays within its share of the time. */
  double free_s;
} TrsHistory;

/*
  TrsHistoryStart - Take over the rows that the run has already written, and begin a row of /starts.

  Collective; call this before readers start. Rows of steps that will be trained again are left out.
  A file that cannot be taken over is kept like another run's file, and a line reports it.

  In:     session, results, progress  borrowed until TrsHistoryEnd(); the progress may start later
          step              number of updates so far
  InOut:  output            the place of the results, which is claimed; used on rank 0 only Errors
                            (agreed): errors of TrsOutputClaim()
*/
PetscErrorCode TrsHistoryStart(const TrsSession *session, TrsResults results, const TrsProgress *progress,
                               TrsOutput *output, int64_t step, TrsHistory *history);

/*
  Write the file after a step if it is due. A failure only causes a warning, and the write is tried
  again later. `steps` counts from this start. Not collective.
*/
PetscErrorCode TrsHistoryStep(TrsHistory *history, int64_t steps);

/*
  TrsHistoryCheckpoint - Write the file before a checkpoint is written.

  Collective. If a run is killed between the two writes, the file has no gap, only surplus rows of
  steps that will be trained again. A file of more than 64 MiB is written later if writing it now
  would exceed 1 % of the time.

  Errors (agreed): errors of TrsResultsWrite()
*/
PetscErrorCode TrsHistoryCheckpoint(TrsHistory *history, int64_t steps);

/*
  Write the file for the last time, before the last checkpoints. Collective. Errors (agreed): errors
  of TrsResultsWrite()
*/
PetscErrorCode TrsHistoryEnd(TrsHistory *history, int64_t steps);
