/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/events.h"

#include "core/clock.h"

#include <stdatomic.h>

static const char *const stage_name[TRS_N_STAGES] = {
    "input_dist", "lookup", "output_dist", "dense forward", "dense backward", "embedding backward",
    "optimizer",  "I/O",    "waiting",     "exchange",      "cache",          "plan",
    "none"};

static PetscLogEvent event[TRS_N_STAGES]; /* written once, by TrsEventsRegister() */
static PetscBool registered;

/*
  The main thread's stage, the time at which it was entered, and the seconds spent in each stage.
  Other threads read only `current`.
*/
static _Atomic int current = TRS_STAGE_NONE;
static _Atomic int64_t n_switches;
static double entered_s, spent_s[TRS_N_STAGES];
static void (*observer)(const char *name); /* set once when the run is set up */
static void (*recorder)(TrsStage stage, double start_s, double end_s);

PetscErrorCode TrsEventsRegister(void)
{
  PetscClassId class_id;

  PetscFunctionBegin;
  if (registered) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscClassIdRegister("trshard", &class_id));
  for (int i = 0; i < TRS_STAGE_NONE; i++)
    PetscCall(PetscLogEventRegister(stage_name[i], class_id, &event[i]));
  entered_s = TrsClock();
  registered = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStageSwitch(TrsStage stage, TrsStage *before)
{
  TrsStage last = TrsStageCurrent();
  double now_s;

  PetscFunctionBegin;
  if (before) *before = last;
  if (!registered || stage == last) PetscFunctionReturn(PETSC_SUCCESS);
  now_s = TrsClock();
  spent_s[last] += now_s - entered_s;
  if (PetscUnlikely(recorder) && last != TRS_STAGE_NONE) recorder(last, entered_s, now_s);
  entered_s = now_s;
  if (last != TRS_STAGE_NONE) PetscCall(PetscLogEventEnd(event[last], 0, 0, 0, 0));
  if (stage != TRS_STAGE_NONE) PetscCall(PetscLogEventBegin(event[stage], 0, 0, 0, 0));
  if (observer && last != TRS_STAGE_NONE) observer(NULL);
  if (observer && stage != TRS_STAGE_NONE) observer(stage_name[stage]);
  atomic_store_explicit(&current, (int)stage, memory_order_relaxed);
  atomic_fetch_add_explicit(&n_switches, 1, memory_order_relaxed);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStageTimes(double seconds[TRS_N_STAGES], PetscBool reset)
{
  double now_s = TrsClock();

  PetscFunctionBegin;
  if (registered) spent_s[TrsStageCurrent()] += now_s - entered_s;
  entered_s = now_s;
  for (int i = 0; i < TRS_N_STAGES; i++) {
    seconds[i] = spent_s[i];
    if (reset) spent_s[i] = 0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *TrsStageName(TrsStage stage)
{
  return stage_name[stage];
}

void TrsStageObserve(void (*range)(const char *name))
{
  if (observer && TrsStageCurrent() != TRS_STAGE_NONE) observer(NULL);
  observer = range;
  if (observer && TrsStageCurrent() != TRS_STAGE_NONE) observer(stage_name[TrsStageCurrent()]);
}

void TrsStageRecord(void (*record)(TrsStage stage, double start_s, double end_s))
{
  recorder = record;
}

TrsStage TrsStageCurrent(void)
{
  return (TrsStage)atomic_load_explicit(&current, memory_order_relaxed);
}

void TrsStageProgress(void)
{
  atomic_fetch_add_explicit(&n_switches, 1, memory_order_relaxed);
}

int64_t TrsStageSwitches(void)
{
  return atomic_load_explicit(&n_switches, memory_order_relaxed);
}

static _Thread_local PetscBool flops_paused;

PetscErrorCode TrsLogFlops(double flops)
{
  PetscFunctionBegin;
  if (!flops_paused) PetscCall(PetscLogFlops(flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsLogFlopsPause(PetscBool pause)
{
  flops_paused = pause;
}
