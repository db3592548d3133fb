/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The stages of a run are PETSc log events, with one row each in -log_view.

  Only the main thread begins and ends stages, because PETSc's log is not thread-safe. Stages do not
  nest, so each second is counted once. The stage `wait` is all time blocked on other ranks or on
  the reader: a stage that must wait ends itself first, or uses TrsStageSwitch().
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
  TRS_STAGE_EMBEDDING_BACKWARD, /* includes the fused optimizer */
  TRS_STAGE_OPTIMIZER,          /* the dense optimizer */
  TRS_STAGE_IO,                 /* reading batches, reading and writing checkpoints */
  TRS_STAGE_WAIT,
  /* All copying or adding of data from other ranks. If data travels in messages, MPI does this work
     while we wait. */
  TRS_STAGE_EXCHANGE,
  TRS_STAGE_CACHE, /* bringing rows from host memory into a device's caches */
  TRS_STAGE_PLAN,
  TRS_STAGE_NONE, /* outside any stage */
  TRS_N_STAGES
} TrsStage;

PetscErrorCode TrsEventsRegister(void);

/*
  Enter a stage and return the previous one in *before, so that the caller can restore it:
  TrsStageSwitch(TRS_STAGE_WAIT, &before); ... TrsStageSwitch(before, NULL).
*/
PetscErrorCode TrsStageSwitch(TrsStage stage, TrsStage *before);

/* Seconds that this rank spent in each stage since the start or the last reset. */
PetscErrorCode TrsStageTimes(double seconds[TRS_N_STAGES], PetscBool reset);

const char *TrsStageName(TrsStage stage);

/*
  Count floating-point operations for -log_view. PETSc's counter belongs to the main thread: a
  thread that calls TrsLogFlopsPause(PETSC_TRUE) counts none until it calls it with PETSC_FALSE.
*/
PetscErrorCode TrsLogFlops(double flops);
void TrsLogFlopsPause(PetscBool pause);

/*
  Call `range` for every stage from now on: with the stage's name at its beginning and with NULL at
  its end (the range of device/device.h). range NULL ends the calls. For the main thread only.
*/
void TrsStageObserve(void (*range)(const char *name));

/*
  Call `record` with each stage that ends, when it began and when it ended, on this rank's clock.
  NULL ends the calls. For the main thread only.
*/
void TrsStageRecord(void (*record)(TrsStage stage, double start_s, double end_s));

/* The stage that this rank is in. The watchdog uses this function. Safe to call from any thread. */
TrsStage TrsStageCurrent(void);

/*
  Report progress within a long stage, as if the stage had changed. Safe to call from any thread.
*/
void TrsStageProgress(void);

/*
  The number of stage changes of this rank. The rank makes progress as long as the number grows.
  Safe to call from any thread.
*/
int64_t TrsStageSwitches(void);
