/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The stages of a run, as PETSc log events: one row each in -log_view.

  Begin and end on the main thread only (PETSc's log is not thread-safe). Stages do not nest: time is counted once. `wait` is time
  blocked on other ranks or on the reader, wherever it happens: a stage that must wait ends itself first, or uses TrsStageSwitch.
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
  TRS_STAGE_OPTIMIZER,          /* dense */
  TRS_STAGE_IO,                 /* batches, checkpoints */
  TRS_STAGE_WAIT,
  TRS_STAGE_EXCHANGE, /* copying, or adding, what other ranks sent, wherever it happens; by messages MPI does it while we wait */
  TRS_STAGE_CACHE, /* bringing rows from host memory into caches of the device */
  TRS_STAGE_PLAN,
  TRS_STAGE_NONE, /* outside any stage */
  TRS_N_STAGES
} TrsStage;

PetscErrorCode TrsEventsRegister(void);

/* Enter a stage and return the one left, so that the caller can go back: TrsStageSwitch(TRS_STAGE_WAIT, &before); ... TrsStageSwitch(before, NULL). */
PetscErrorCode TrsStageSwitch(TrsStage stage, TrsStage *before);

/* Seconds this rank spent in each stage since the start or the last reset: [TRS_N_STAGES]. */
PetscErrorCode TrsStageTimes(double seconds[TRS_N_STAGES], PetscBool reset);

const char *TrsStageName(TrsStage stage);

/* From now on tell of every stage: its name where it begins, NULL where it ends (device/device.h's range); NULL: tell no one. Main thread. */
void TrsStageObserve(void (*range)(const char *name));

/* The stage this rank is in, for the watchdog: safe to call from any thread. */
TrsStage TrsStageCurrent(void);

/* A sign of life within a long stage, as if it had been changed. From any thread. */
void TrsStageProgress(void);

/* How often this rank has changed its stage: as long as the number grows it gets on. From any thread, too. */
int64_t TrsStageSwitches(void);
