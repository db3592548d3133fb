/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The stages of a run are PETSc log events, with one row each in -log_view.

  Only the main thread begins and ends stages, because PETSc's log is not thread-safe. Stages do not
  nest, so each second is counted once. The stage `wait` is the time during which this rank waits
  for other ranks or for the reader. Before a stage waits, it must end or call TrsStageSwitch().
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef enum {
  TRS_STAGE_INPUT_DIST,
  TRS_STAGE_LOOKUP,
  TRS_STAGE_OUTPUT_DIST,
  TRS_STAGE_DENSE_FORWARD,
  TRS_STAGE_DENSE_BACKWARD,
  TRS_STAGE_EMBEDDING_BACKWARD, /* with the fused optimizer */
  TRS_STAGE_OPTIMIZER,          /* the dense optimizer */
  TRS_STAGE_IO,                 /* reading batches, reading and writing checkpoints */
  TRS_STAGE_WAIT,
  /* Copying or adding data from other ranks. If data travels in messages, MPI does this work
     while we wait. */
  TRS_STAGE_EXCHANGE,
  TRS_STAGE_CACHE, /* loading rows from host memory into a device's caches */
  TRS_STAGE_PLAN,
  TRS_STAGE_NONE, /* outside of all stages */
  TRS_N_STAGES
} TrsStage;

PetscErrorCode TrsEventsRegister(void);

/*
  Enter a stage, and return the previous stage in *before, so that the caller can restore it:
  TrsStageSwitch(TRS_STAGE_WAIT, &before); ... TrsStageSwitch(before, NULL).
*/
PetscErrorCode TrsStageSwitch(TrsStage stage, TrsStage *before);

/* Return the seconds that this rank has spent in each stage since the start or the last reset. */
PetscErrorCode TrsStageTimes(double seconds[TRS_N_STAGES], PetscBool reset);

const char *TrsStageName(TrsStage stage);

/*
  Count floating-point operations for -log_view. PETSc's counter belongs to the main thread. Between
  TrsLogFlopsPause(PETSC_TRUE) and TrsLogFlopsPause(PETSC_FALSE), a thread's calls count nothing.
*/
PetscErrorCode TrsLogFlops(double flops);
void TrsLogFlopsPause(PetscBool pause);

/*
  From now on, call `range` at the beginning of every stage with the stage's name, and at its end
  with NULL (the range of device/device.h). If `range` is NULL, the calls end. For the main thread
  only.
*/
void TrsStageObserve(void (*range)(const char *name));

/*
  From now on, call `record` at the end of every stage, with the stage and the times of its
  beginning and end on this rank's clock. If `record` is NULL, the calls end. For the main thread
  only.
*/
void TrsStageRecord(void (*record)(TrsStage stage, double start_s, double end_s));

/*
  Return the stage in which this rank is. The watchdog uses this function. Safe to call from any
  thread.
*/
TrsStage TrsStageCurrent(void);

/* Report progress in a long stage, as if the stage had changed. Safe to call from any thread. */
void TrsStageProgress(void);

/*
  Return how often this rank has changed its stage. As long as the number grows, the rank makes
  progress. Safe to call from any thread.
*/
int64_t TrsStageSwitches(void);
