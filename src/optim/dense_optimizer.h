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

/* The state that is the average of the weights, with -ema_decay. */
#define TRS_DENSE_AVERAGE "ema"

/* Is the tensor at a path, as "dense_optimizer/over_arch/0/bias/ema", such a state? */
PetscBool TrsDenseIsAverage(const char *path);

typedef struct TrsDenseOptimizerImpl *TrsDenseOptimizer;

extern const TrsOptionGroup trs_dense_optimizer_options;

PetscErrorCode TrsDenseOptimizerCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                       TrsDenseOptimizer *optimizer);

/* Read trs_dense_optimizer_options. Errors: OPTION. */
PetscErrorCode TrsDenseOptimizerSetFromOptions(TrsDenseOptimizer optimizer, TrsOptions options);

/*
  Tell which tensors the values consist of: tensor i begins at first[i] (ascending from 0) and ends
  where the next one begins. lamb takes norms of each. Before SetUp; without it all values are one
  tensor. `first` is copied.
*/
PetscErrorCode TrsDenseOptimizerSetTensors(TrsDenseOptimizer optimizer, int n, const int64_t *first);

/*
  Allocate the states of values [n_values]. The values are device memory, borrowed until Destroy.
  Errors: MEMORY.
*/
PetscErrorCode TrsDenseOptimizerSetUp(TrsDenseOptimizer optimizer, float *values, int64_t n_values);

/*
  Do one step on all values.

  In:     step   counted from 1
          scale  factor of the learning rate in this step, from a schedule (1: none)
          grads  [n_values] summed over ranks
*/
PetscErrorCode TrsDenseOptimizerStep(TrsDenseOptimizer optimizer, TrsStream stream, int64_t step,
                                     double scale, const float *grads);

/* The numbers of a step, as TrsDenseOptimizerStep() has them. Not collective. */
TrsUpdateNumbers TrsDenseOptimizerNumbers(TrsDenseOptimizer optimizer, int64_t step, double scale);

/*
  Let steps read their numbers from device memory, in place of the arguments step and scale.
  Borrowed. NULL: as before.
*/
void TrsDenseOptimizerSetNumbers(TrsDenseOptimizer optimizer, const TrsUpdateNumbers *now);

/*
  List the n states. Their names are those of a checkpoint ("sum", "exp_avg", "exp_avg_sq", "ema").
  Each state is laid out as the values; the model writes them (TrsDlrmAddOptimizerState()). The
  pointers are borrowed until Destroy.
*/
PetscErrorCode TrsDenseOptimizerStates(TrsDenseOptimizer optimizer, int *n,
                                       const char *names[TRS_DENSE_MAX_STATES],
                                       float *states[TRS_DENSE_MAX_STATES]);

/*
  Go on with an average of weights that was read from a checkpoint. Without this call the first step
  makes the average a copy of the weights. Without -ema_decay nothing happens.
*/
void TrsDenseOptimizerContinueAverage(TrsDenseOptimizer optimizer);

/*
  Before the first step there is no average yet. Let a checkpoint have a copy of the weights as one,
  in the stream's order. Not collective.
*/
PetscErrorCode TrsDenseOptimizerFillAverage(TrsDenseOptimizer optimizer, TrsStream stream);

/*
  Exchange the weights with their average, so that an evaluation uses the average; the next call
  exchanges them back. Nothing happens without -ema_decay, or before the first step.
*/
PetscErrorCode TrsDenseOptimizerSwapAverage(TrsDenseOptimizer optimizer, TrsStream stream);

/* The value of -ema_decay in these options; 0: no average. Not collective. */
PetscErrorCode TrsDenseAverageFromOptions(TrsOptions options, double *decay);

/* The optimizer's name in options, such as "adam". Not collective. */
const char *TrsDenseOptimizerName(TrsDenseOptimizer optimizer);

PetscErrorCode TrsDenseOptimizerDestroy(TrsDenseOptimizer *optimizer);
