/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Learning-rate schedules: a factor on the learning rates, step by step, in stages.

  The stages follow each other, and after the last one the factor is 1. The factor depends on the
  step alone, so resuming needs no state.

  Source: torchrec.optim.warmup (WarmupPolicy, WarmupStage, WarmupOptimizer); cosine is ours
          (Loshchilov, Hutter 2017, without restarts)
*/
#pragma once

#include "core/options.h"

typedef enum {
  TRS_SCHEDULE_NONE,     /* the factor is 1 */
  TRS_SCHEDULE_LINEAR,   /* from value to 1 over end_step steps */
  TRS_SCHEDULE_CONSTANT, /* the factor is value */
  TRS_SCHEDULE_POLY,     /* (1 - s / decay_steps) ^ value, 0 after decay_steps */
  TRS_SCHEDULE_STEP,     /* value ^ floor(s / decay_steps) */
  TRS_SCHEDULE_INV_SQRT, /* 1 / sqrt(s), 1 at s = 0 */
  TRS_SCHEDULE_COSINE    /* from 1 to value over decay_steps, half a cosine wave */
} TrsSchedulePolicy;     /* s counts steps from 0 at the start of the run */

typedef struct {
  TrsSchedulePolicy policy;
  int64_t end_step;    /* last s of the stage (TorchRec's max_iters) */
  int64_t decay_steps; /* default: 1 for the policy step, else end_step */
  double value;
  double scale; /* multiplies the policy's factor */
} TrsScheduleStage;

typedef struct {
  int n_stages; /* 0: the factor is 1 */
  TrsScheduleStage *stage;
} TrsSchedule;

extern const TrsOptionGroup trs_schedule_options;

/*
  TrsScheduleFromOptions - Read trs_schedule_options.

  Not collective.

  Out:    schedule  free with TrsScheduleFree()
  Errors: OPTION for lists of unequal lengths, or for stages that do not end one after the other
*/
PetscErrorCode TrsScheduleFromOptions(TrsOptions options, TrsSchedule *schedule);
PetscErrorCode TrsScheduleFree(TrsSchedule *schedule);

/* The factor of step `step`, counted from 1. Not collective. */
double TrsScheduleFactor(const TrsSchedule *schedule, int64_t step);
