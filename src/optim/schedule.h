/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Learning-rate schedules: a factor on the learning rates, step by step, in stages.

  A stage has a policy, a length in steps and a multiplier; stages follow each other, the last one stays. Pure functions of the step, so resuming
  needs no state.
  Source: torchrec.optim.warmup (WarmupPolicy, WarmupStage, WarmupOptimizer)
*/
#pragma once

#include "core/options.h"

typedef enum {
  TRS_SCHEDULE_NONE,     /* 1 */
  TRS_SCHEDULE_LINEAR,   /* from 0 up to 1 over the stage */
  TRS_SCHEDULE_CONSTANT, /* the stage's value */
  TRS_SCHEDULE_POLY,     /* (1 - s / decay_steps) ^ value */
  TRS_SCHEDULE_STEP,     /* value ^ floor(s / decay_steps) */
  TRS_SCHEDULE_INVSQRT,  /* sqrt(decay_steps / max(s, decay_steps)) */
  TRS_SCHEDULE_COSINE,   /* half a cosine wave from 1 to 0 over decay_steps */
  TRS_N_SCHEDULE_POLICIES
} TrsSchedulePolicy;

typedef struct {
  TrsSchedulePolicy policy;
  int64_t max_steps; /* first step after the stage; the last stage's is not used */
  double value;
  double multiplier;   /* of the stage */
  int64_t decay_steps; /* 0: the stage's own length */
} TrsScheduleStage;

typedef struct {
  int n_stages; /* 0: the factor is 1 */
  TrsScheduleStage *stage;
} TrsSchedule;

extern const TrsOptionGroup trs_schedule_options;

/* Read trs_schedule_options. Free with TrsScheduleFree(). Not collective. Errors: OPTION for lists of unequal lengths, or stages that do not follow each other */
PetscErrorCode TrsScheduleFromOptions(TrsOptions options, TrsSchedule *schedule);
PetscErrorCode TrsScheduleFree(TrsSchedule *schedule);

/* The factor in step `step`, counted from 1. Not collective. */
double TrsScheduleFactor(const TrsSchedule *schedule, int64_t step);
