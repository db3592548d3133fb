/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Learning-rate schedules. A schedule gives the factor on the learning rates for each step. It
  consists of stages.

  Stages follow each other. After the last stage the factor is 1. The factor depends only on the
  step, so a resumed run needs no saved state.

  Source: torchrec.optim.warmup (WarmupPolicy, WarmupStage, WarmupOptimizer); cosine is ours
          (Loshchilov, Hutter 2017, without restarts), cosine_restarts is
          torch.optim.lr_scheduler.CosineAnnealingWarmRestarts
*/
#pragma once

#include "core/options/options.h"
#include "spec/vocabulary.h"

typedef struct {
  TrsSchedulePolicy policy;
  /* the s = step - 1 from which the policy counts: 0, or the end of the previous stage */
  int64_t start_step;
  int64_t end_step;    /* the last s of the stage (TorchRec's max_iters) */
  int64_t decay_steps; /* default: 1 for the policy step, end_step - start_step for the others */
  /* cosine_restarts: a cycle's length divided by the previous cycle's length */
  int64_t cycle_factor;
  double value;
  double scale; /* multiplies the policy's factor */
} TrsScheduleStage;

typedef struct {
  int n_stages; /* number of stages; 0: the factor is always 1 */
  TrsScheduleStage *stage;
} TrsSchedule;

extern const TrsOptionGroup trs_schedule_options;

/*
  TrsScheduleFromOptions - Read trs_schedule_options.

  Not collective.

  Out:    schedule  free with TrsScheduleFree()
  Errors: OPTION for lists of unequal lengths, or for stages whose ends do not ascend
*/
PetscErrorCode TrsScheduleFromOptions(TrsOptions options, TrsSchedule *schedule);
PetscErrorCode TrsScheduleFree(TrsSchedule *schedule);

/* The factor for step `step`, counted from 1. Not collective. */
double TrsScheduleFactor(const TrsSchedule *schedule, int64_t step);
