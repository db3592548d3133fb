/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/schedule.h"

#include <inttypes.h>
#include <math.h>

static const TrsOptionSpec specs[] = {
    {"-schedule_policies", TRS_OPTION_ENUMS, NULL, NULL, TRS_CHOICES(TRS_SCHEDULES), NULL,
     "learning-rate schedule of all optimizers, one policy per stage; default: constant learning rates"},
    {"-schedule_end_steps", TRS_OPTION_INTS, NULL, "[1,]", NULL, "steps",
     "last step of each stage; after the last stage the factor is 1"},
    {"-schedule_values", TRS_OPTION_REALS, NULL, "[0,]", NULL, NULL,
     "each stage's value. It is the start of linear, the factor of constant, the exponent of poly and the "
     "base of step. It is also the end of cosine, and of each cycle of cosine_restarts; default: 1"},
    {"-schedule_scales", TRS_OPTION_REALS, NULL, "[0,]", NULL, NULL, "factor on each stage; default: 1"},
    {"-schedule_decay_steps", TRS_OPTION_INTS, NULL, "[0,]", NULL, "steps",
     "length of poly's and cosine's decay and of the first cycle of cosine_restarts, interval of step; 0 and "
     "default: the stage's end, 1 for step"},
    {"-schedule_steps_of", TRS_OPTION_ENUM, "run", NULL, "run,stage", NULL,
     "steps that a stage's policy counts. run: the steps of the run, as in TorchRec, so that a decay "
     "after a warm-up has already begun. stage: the steps of the stage"},
    {"-schedule_cycle_factors", TRS_OPTION_INTS, NULL, "[1,1000]", NULL, NULL,
     "each cycle of cosine_restarts is this many times as long as the one before; default: 1"},
};
const TrsOptionGroup trs_schedule_options = TRS_OPTION_GROUP("Learning-rate schedule", specs);

static PetscErrorCode check_length(TrsOptions options, const char *name, PetscBool set, int n, int n_stages)
{
  PetscFunctionBegin;
  if (set && n != n_stages) {
    PetscCall(TrsOptionError(options, name, "%d entries, but -schedule_policies has %d", n, n_stages));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsScheduleFromOptions(TrsOptions options, TrsSchedule *schedule)
{
  const int *policies = NULL;
  const int64_t *end_steps = NULL, *decay_steps = NULL, *cycle_factors = NULL;
  const double *values = NULL, *scales = NULL;
  int n_stages = 0, n_ends = 0, n_values = 0, n_scales = 0, n_decays = 0, n_factors = 0;
  PetscBool set;
  int of_stage;

  PetscFunctionBegin;
  *schedule = (TrsSchedule){0};
  PetscCall(TrsOptionsGetEnums(options, "-schedule_policies", &n_stages, &policies, &set));
  if (!set) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TrsOptionsGetInts(options, "-schedule_end_steps", &n_ends, &end_steps, NULL));
  PetscCall(check_length(options, "-schedule_end_steps", PETSC_TRUE, n_ends, n_stages));
  PetscCall(TrsOptionsGetReals(options, "-schedule_values", &n_values, &values, &set));
  PetscCall(check_length(options, "-schedule_values", set, n_values, n_stages));
  PetscCall(TrsOptionsGetReals(options, "-schedule_scales", &n_scales, &scales, &set));
  PetscCall(check_length(options, "-schedule_scales", set, n_scales, n_stages));
  PetscCall(TrsOptionsGetInts(options, "-schedule_decay_steps", &n_decays, &decay_steps, &set));
  PetscCall(check_length(options, "-schedule_decay_steps", set, n_decays, n_stages));
  PetscCall(TrsOptionsGetInts(options, "-schedule_cycle_factors", &n_factors, &cycle_factors, &set));
  PetscCall(check_length(options, "-schedule_cycle_factors", set, n_factors, n_stages));
  PetscCall(TrsOptionsGetEnum(options, "-schedule_steps_of", &of_stage, NULL));

  schedule->n_stages = n_stages;
  PetscCall(PetscMalloc1((size_t)n_stages, &schedule->stage));
  for (int i = 0; i < n_stages; i++) {
    TrsScheduleStage *stage = &schedule->stage[i];

    if (i && end_steps[i] <= end_steps[i - 1]) {
      PetscCall(TrsOptionError(options, "-schedule_end_steps",
                               "stage %d ends at step %" PRId64 ", not after stage %d (%" PRId64 ")", i + 1,
                               end_steps[i], i, end_steps[i - 1]));
    }
    stage->policy = (TrsSchedulePolicy)policies[i];
    stage->start_step = of_stage && i ? end_steps[i - 1] : 0;
    stage->end_step = end_steps[i];
    stage->value = n_values ? values[i] : 1.0;
    stage->scale = n_scales ? scales[i] : 1.0;
    stage->cycle_factor = n_factors ? cycle_factors[i] : 1;
    stage->decay_steps = n_decays ? decay_steps[i] : 0;
    if (!stage->decay_steps)
      stage->decay_steps = stage->policy == TRS_SCHEDULE_STEP ? 1 : stage->end_step - stage->start_step;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsScheduleFree(TrsSchedule *schedule)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(schedule->stage));
  schedule->n_stages = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The position of step s in its cycle, from 0 (included) to 1 (excluded). */
static double part_of_cycle(const TrsScheduleStage *stage, int64_t s)
{
  int64_t length = stage->decay_steps;

  if (stage->cycle_factor == 1) return (double)(s % length) / (double)length;
  while (s >= length) {
    s -= length;
    length *= stage->cycle_factor;
  }
  return (double)s / (double)length;
}

/* Half a cosine wave that goes from 1 to `to` while `part` goes from 0 to 1. */
static double cosine(double to, double part)
{
  return to + (1.0 - to) * 0.5 * (1.0 + cos(M_PI * part));
}

static double stage_factor(const TrsScheduleStage *stage, int64_t step)
{
  const int64_t s = step - stage->start_step, end = stage->end_step - stage->start_step;
  const double part = fmin((double)s / (double)stage->decay_steps, 1.0);

  switch (stage->policy) {
  case TRS_SCHEDULE_NONE: break;
  case TRS_SCHEDULE_LINEAR: return stage->value + (1.0 - stage->value) * (double)s / (double)end;
  case TRS_SCHEDULE_CONSTANT: return stage->value;
  case TRS_SCHEDULE_POLY: return pow(1.0 - part, stage->value);
  case TRS_SCHEDULE_STEP: return pow(stage->value, floor((double)s / (double)stage->decay_steps));
  case TRS_SCHEDULE_INV_SQRT: return 1.0 / sqrt((double)(s > 1 ? s : 1));
  case TRS_SCHEDULE_COSINE: return cosine(stage->value, part);
  case TRS_SCHEDULE_COSINE_RESTARTS: return cosine(stage->value, part_of_cycle(stage, s));
  }
  return 1.0;
}

double TrsScheduleFactor(const TrsSchedule *schedule, int64_t step)
{
  const int64_t s = step - 1;

  for (int i = 0; i < schedule->n_stages; i++)
    if (s <= schedule->stage[i].end_step)
      return stage_factor(&schedule->stage[i], s) * schedule->stage[i].scale;
  return 1.0;
}
