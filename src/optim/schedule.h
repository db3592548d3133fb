/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Learning-rate schedules: a factor on the learning rates, step by step, in stages.

  The stages follow each other, and after the last one the factor is 1. The factor depends on the
  step alone, so resuming needs no state.

  Source: torchrec.optim.warmup (WarmupPolicy, WarmupStage, WarmupOptimizer); cosine is ours
          (Loshchilov, Hutter 2017, without restarts), cosine_restarts is
          torch.optim.lr_scheduler.CosineAnnealingWarmRestarts
*/
#pragma once

#include "core/options/options.h"
#include "spec/vocabulary.h"

typedef struct {
  TrsSchedulePolicy policy;
  int64_t start_step;   /* the s that the policy counts from: 0, or the end of the stage before */
  int64_t end_step;     /* last s of the stage (TorchRec's max_iters) */
  int64_t decay_steps;  /* default: 1 for the policy step, else those from start_step to end_step */
  int64_t cycle_factor; /* of cosine_restarts: a cycle's length over that of the cycle before */
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
