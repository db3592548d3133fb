/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The dense layers' optimizer: one of TRS_DENSE_OPTIMIZERS (spec/vocabulary.h) on the flat array of
  all dense parameters. Every rank holds the whole array and gets the same summed gradients, so no
  function here is collective.

  Source: torch.optim.SGD, Adagrad, Adam, AdamW; LAMB (You et al. 2020, algorithm 2);
          torch.nn.utils.clip_grad_norm_, clip_grad_value_; torch.optim.swa_utils.AveragedModel with
          get_ema_multi_avg_fn; src/RULES.md, rule A6
*/
#pragma once

#include "compute/compute_ops.h"
#include "core/options/options.h"

#define TRS_DENSE_MAX_STATES 3

/* The name of the state that holds the weights' average, if -ema_decay is set. */
#define TRS_DENSE_AVERAGE "ema"

/* True if a path names the weights' average, for example "dense_optimizer/over_arch/0/bias/ema". */
PetscBool TrsDenseIsAverage(const char *path);

typedef struct TrsDenseOptimizerImpl *TrsDenseOptimizer;

extern const TrsOptionGroup trs_dense_optimizer_options;

PetscErrorCode TrsDenseOptimizerCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                       TrsDenseOptimizer *optimizer);

/* Read trs_dense_optimizer_options. Errors: OPTION. */
PetscErrorCode TrsDenseOptimizerSetFromOptions(TrsDenseOptimizer optimizer, TrsOptions options);

/*
  Set the tensors that make up the values: tensor i is first[i] .. first[i + 1] - 1, with first[0] =
  0. lamb computes norms for each tensor. Must be called before SetUp. Without this call, all values
  are one tensor. The optimizer copies `first`.
*/
PetscErrorCode TrsDenseOptimizerSetTensors(TrsDenseOptimizer optimizer, int n, const int64_t *first);

/*
  Allocate the states for values [n_values]. `values` is device memory and is borrowed until
  Destroy.
  Errors: MEMORY.
*/
PetscErrorCode TrsDenseOptimizerSetUp(TrsDenseOptimizer optimizer, float *values, int64_t n_values);

/*
  Do one step on all values.

  In:     step   index of the step, counted from 1
          scale  factor of the learning rate in this step, from a schedule; 1 without a schedule
          grads  [n_values] summed over ranks
*/
PetscErrorCode TrsDenseOptimizerStep(TrsDenseOptimizer optimizer, TrsStream stream, int64_t step,
                                     double scale, const float *grads);

/* The step-dependent numbers that TrsDenseOptimizerStep() uses. Not collective. */
TrsUpdateNumbers TrsDenseOptimizerNumbers(TrsDenseOptimizer optimizer, int64_t step, double scale);

/*
  Make steps read their numbers from device memory instead of from the arguments step and scale.
  `now` is borrowed. NULL: use the arguments again.
*/
void TrsDenseOptimizerSetNumbers(TrsDenseOptimizer optimizer, const TrsUpdateNumbers *now);

/*
  Make steps also write the new weights as bf16 to `operands` [n_values], which is device memory
  (TrsDenseOptimizerArgs). Borrowed until Destroy. NULL: do not.
*/
void TrsDenseOptimizerSetOperands(TrsDenseOptimizer optimizer, void *operands);

/*
  List the n states, with the names that they have in a checkpoint ("sum", "exp_avg", "exp_avg_sq",
  "ema"). Each state has the layout of the values. The model writes the states
  (TrsDlrmAddOptimizerState()). The pointers are borrowed until Destroy.
*/
PetscErrorCode TrsDenseOptimizerStates(TrsDenseOptimizer optimizer, int *n,
                                       const char *names[TRS_DENSE_MAX_STATES],
                                       float *states[TRS_DENSE_MAX_STATES]);

/*
  Declare that the average was read from a checkpoint, so that the next step continues it. Without
  this call, the first step initialises the average with the weights. No effect without -ema_decay.
*/
void TrsDenseOptimizerContinueAverage(TrsDenseOptimizer optimizer);

/*
  For a checkpoint: if no step was made yet, fill the average with a copy of the weights, in the
  stream's order. Not collective.
*/
PetscErrorCode TrsDenseOptimizerFillAverage(TrsDenseOptimizer optimizer, TrsStream stream);

/*
  Swap the weights with their average, so that an evaluation uses the average. The next call swaps
  them back. No effect without -ema_decay or before the first step.
*/
PetscErrorCode TrsDenseOptimizerSwapAverage(TrsDenseOptimizer optimizer, TrsStream stream);

/* Read -ema_decay from the options. 0: no average. Not collective. */
PetscErrorCode TrsDenseAverageFromOptions(TrsOptions options, double *decay);

/* The optimizer's name in options, such as "adam". Not collective. */
const char *TrsDenseOptimizerName(TrsDenseOptimizer optimizer);

PetscErrorCode TrsDenseOptimizerDestroy(TrsDenseOptimizer *optimizer);
