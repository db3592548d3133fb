/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A training's history over all its starts, in the results: what earlier starts of the run wrote is
  taken over, each start has a
  row in /starts, and the file is written often enough that a killed job leaves its curve.

  Rank 0 holds and writes it all. When to write is rank 0's decision by its own clock; at time-
  driven writes no other rank takes part, so
  no step of theirs depends on a clock.
*/
#pragma once

#include "core/events.h"
#include "io/results.h"
#include "run/session.h"

typedef struct {
  const TrsSession *session; /* borrowed, as is the next */
  TrsResults results;
  int64_t index;                   /* this start's row of /starts */
  int64_t first_step;              /* updates that the weights had seen at the start */
  double time_s;                   /* since 1970, at the start */
  double start_s;                  /* the clock then */
  double stage_ms[TRS_STAGE_NONE]; /* a step's, mean over ranks, when last gathered; NaN before */
  char *plan;                      /* JSON; "": as at the start before */
  double every_s;                  /* -output_every */
  double due_s;                    /* the clock when the file is to be written, whatever happens */
  double free_s;                   /* the clock from which on a write keeps to its share of the time */
} TrsHistory;

/*
  TrsHistoryStart - Take over what the run has written before, and begin a row of /starts.

  Collective; before readers start. Rows of steps that are trained again are left out. A file that
  cannot be taken over is kept
  as another run's; a line says so.

  In:     session, results  borrowed until TrsHistoryEnd()
          step              updates that the weights have seen
  InOut:  output            the place of the results, claimed; rank 0's counts
  Errors (agreed): those of TrsOutputClaim()
*/
PetscErrorCode TrsHistoryStart(const TrsSession *session, TrsResults results, TrsOutput *output, int64_t step,
                               TrsHistory *history);

/* After each step: write the file if it is due. A failure is a warning, and tried again. Not
   collective. steps: done since this start. */
PetscErrorCode TrsHistoryStep(TrsHistory *history, int64_t steps);

/*
  TrsHistoryCheckpoint - Write the file, then let a checkpoint follow: a run that is killed between
  them has rows too many, which
  are trained again, and not a gap.

  Collective. A file of more than 64 MiB is left for later if writing it would take more than 1 % of
  the time. Errors (agreed): those
  of TrsResultsWrite()
*/
PetscErrorCode TrsHistoryCheckpoint(TrsHistory *history, int64_t steps);

/* Write the file for the last time, before the last checkpoints likewise. Collective. Errors
   (agreed): likewise */
PetscErrorCode TrsHistoryEnd(TrsHistory *history, int64_t steps);
