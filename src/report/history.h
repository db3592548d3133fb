/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The history of a training, which the results file stores. It covers all starts of the training. A
  start loads the rows that earlier starts of the run have written. Each start also has a row in
  /starts. The file is written so often that the curve survives if the job is killed. A start writes
  its first file after a few seconds, and then less and less often, so that a reader can watch it
  from the beginning.

  Rank 0 holds and writes everything. Its own clock decides when to write. Other ranks take no part
  in writes that depend on time, so their steps do not depend on a clock.
*/
#pragma once

#include "core/events.h"
#include "io/results.h"
#include "report/progress.h"
#include "session/session.h"

typedef struct {
  const TrsSession *session; /* borrowed, like the next two fields */
  TrsResults results;
  const TrsProgress *progress;
  int64_t index;      /* index of this start's row in /starts */
  int64_t first_step; /* number of updates before this start */
  double time_s;      /* time of the start, in seconds since 1970 */
  double start_s;     /* clock at this start */
  /* On all ranks: true if the file has the summary of an earlier start. A start without steps
     keeps this summary. */
  PetscBool has_summary;
  /* Milliseconds per step in each stage: averaged over ranks when they were last gathered. Before
     that, rank 0's own when the file was last written, or NaN. */
  double stage_ms[TRS_STAGE_NONE];
  PetscBool gathered; /* true: stage_ms are averages over ranks */
  char *plan;         /* the plan as JSON; "" if the previous start had the same plan */
  double every_s;     /* -output_every */
  double interval_s;  /* seconds until the next write; they double up to every_s */
  double due_s;       /* when the clock passes this time, the file must be written */
  /* When the clock has passed this time, another write stays within its share of the time. */
  double free_s;
} TrsHistory;

/*
  TrsHistoryStart - Load the rows that the run has already written, and begin a row of /starts.

  Collective. Must be called before readers start. Rows of steps that will be trained again are left
  out. If the file cannot be loaded, it is kept like a file of another run, and the log has a line
  about it.

  In:     session, results, progress  borrowed until TrsHistoryEnd(); the progress may start later
          step                        number of updates so far
  InOut:  output  the output file of the results, which the call claims; used only on rank 0
  Errors (agreed): errors of TrsOutputClaim()
*/
PetscErrorCode TrsHistoryStart(const TrsSession *session, TrsResults results, const TrsProgress *progress,
                               TrsOutput *output, int64_t step, TrsHistory *history);

/*
  Write the file after a step if a write is due. A failure only causes a warning, and the write is
  tried again later. `steps` is the number of steps since this start. Not collective.
*/
PetscErrorCode TrsHistoryStep(TrsHistory *history, int64_t steps);

/*
  TrsHistoryCheckpoint - Write the file before a checkpoint is written.

  Collective. If a run is killed between the two writes, the file has rows of steps that will be
  trained again, but no gap. If the file has more than 64 MiB and writing it now would exceed 1 % of
  the time, it is written later.

  Errors (agreed): errors of TrsResultsWrite()
*/
PetscErrorCode TrsHistoryCheckpoint(TrsHistory *history, int64_t steps);

/*
  Write the file for the last time, before the last checkpoints. Collective. Errors (agreed): errors
  of TrsResultsWrite()
*/
PetscErrorCode TrsHistoryEnd(TrsHistory *history, int64_t steps);
