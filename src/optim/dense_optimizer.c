/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/dense_optimizer.h"

#include "core/buffer.h"

#include <string.h>

struct TrsDenseOptimizerImpl {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsDenseOptimizerArgs args;
  double learning_rate;
  double max_gradient_norm; /* largest allowed norm of the gradient; 0: no clipping */
  float *values;            /* borrowed */
  int64_t n_values;
  int n_tensors;
  int64_t *first; /* [n_tensors + 1] index of each tensor's first value */
  float *state[TRS_DENSE_MAX_STATES];
  double average_decay;  /* 0: no average */
  float *average;        /* [n_values] average of the weights; allocated if -ema_decay is set */
  float *aside;          /* [n_values] scratch for swapping the average with the weights */
  PetscBool has_average; /* the average has been initialised */
  /* [2] device: sum of squares of the gradient; for lamb, of a tensor's weights and its step */
  double *squares;
};

/* The names of the optimizers and of their states. */
static const struct {
  const char *word, *state[2];
  double eps, decay;
} kinds[] = {
#define DENSE_OPTIMIZER(KIND, word, name0, name1, eps, decay) {#word, {name0, name1}, eps, decay},
    TRS_DENSE_OPTIMIZERS(DENSE_OPTIMIZER)};

static const TrsOptionSpec specs[] = {
    {"-dense_optimizer", TRS_OPTION_ENUM, "sgd", NULL, TRS_CHOICES(TRS_DENSE_OPTIMIZERS), NULL,
     "optimizer of the dense layers, as in torch.optim. lamb: You et al. 2020, separately for the weights "
     "and the biases of a layer"},
    {"-dense_learning_rate", TRS_OPTION_REAL, "0.01", "[0,]", NULL, NULL,
     "learning rate of the dense layers"},
    {"-dense_eps", TRS_OPTION_REAL, NULL, "[0,]", NULL, NULL,
     "number added to the root; default: adagrad 1e-10, adam and adamw 1e-8, lamb 1e-6"},
    {"-dense_beta1", TRS_OPTION_REAL, "0.9", "[0,1)", NULL, NULL,
     "adam, adamw, lamb: decay of the mean of the gradient"},
    {"-dense_beta2", TRS_OPTION_REAL, "0.999", "[0,1)", NULL, NULL,
     "adam, adamw, lamb: decay of the mean of the squared gradient"},
    {"-dense_weight_decay", TRS_OPTION_REAL, NULL, "[0,]", NULL, NULL,
     "this number times the weight is added to the gradient. With lamb it is added to the step, after the "
     "division by the root. With adamw the weight is multiplied by 1 minus the learning rate times this "
     "number; default: 0.01 for adamw, 0 for the others"},
    {"-dense_max_gradient_norm", TRS_OPTION_REAL, NULL, "(0,]", NULL, NULL,
     "scale the dense gradient down to this 2-norm if its 2-norm is larger; default: no clipping"},
    {"-ema_decay", TRS_OPTION_REAL, NULL, "[0,1)", NULL, NULL,
     "keep an average of the dense layers' weights for evaluation and prediction. After each step, the "
     "average becomes d times itself plus 1 - d times the weights, where d is this number. Tables are not "
     "averaged. 0 and default: none"},
    {"-dense_max_gradient_value", TRS_OPTION_REAL, NULL, "(0,]", NULL, NULL,
     "clamp each element of the dense gradient to +- this; not with -dense_max_gradient_norm; default: no "
     "clamping"},
};
const TrsOptionGroup trs_dense_optimizer_options = TRS_OPTION_GROUP_OF_MODEL("Dense optimizer", NULL, specs,
                                                                             NULL, "-ema_decay");

PetscErrorCode TrsDenseOptimizerCreate(const TrsDeviceOps *device, const TrsComputeOps *compute,
                                       TrsDenseOptimizer *optimizer)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(optimizer));
  (*optimizer)->device = device;
  (*optimizer)->compute = compute;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseOptimizerSetFromOptions(TrsDenseOptimizer optimizer, TrsOptions options)
{
  TrsDenseOptimizerArgs *args = &optimizer->args;
  double eps, beta1, beta2, weight_decay, max_value = 0.0;
  int kind;

  PetscFunctionBegin;
  PetscCall(TrsDenseAverageFromOptions(options, &optimizer->average_decay));
  PetscCall(TrsOptionsGetEnum(options, "-dense_optimizer", &kind, NULL));
  eps = kinds[kind].eps;
  weight_decay = kinds[kind].decay;
  PetscCall(TrsOptionsGetReal(options, "-dense_learning_rate", &optimizer->learning_rate, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_eps", &eps, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_beta1", &beta1, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_beta2", &beta2, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_weight_decay", &weight_decay, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_max_gradient_norm", &optimizer->max_gradient_norm, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_max_gradient_value", &max_value, NULL));
  if (max_value > 0.0 && optimizer->max_gradient_norm > 0.0)
    PetscCall(
        TrsOptionError(options, "-dense_max_gradient_value",
                       "the gradient is clipped by its values or by -dense_max_gradient_norm, not by both"));
  args->kind = (TrsDenseOptimizerKind)kind;
  args->eps = (float)eps;
  args->beta1 = beta1;
  args->beta2 = beta2;
  args->weight_decay = (float)weight_decay;
  args->max_value = (float)max_value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseAverageFromOptions(TrsOptions options, double *decay)
{
  PetscFunctionBegin;
  *decay = 0.0;
  PetscCall(TrsOptionsGetReal(options, "-ema_decay", decay, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int n_states(TrsDenseOptimizerKind kind)
{
  int n = 0;

  while (n < 2 && kinds[kind].state[n][0]) n++;
  return n;
}

PetscErrorCode TrsDenseOptimizerSetTensors(TrsDenseOptimizer optimizer, int n, const int64_t *first)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(optimizer->first));
  PetscCall(PetscMalloc1((size_t)n + 1, &optimizer->first));
  for (int i = 0; i < n; i++) optimizer->first[i] = first[i];
  optimizer->n_tensors = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseOptimizerSetUp(TrsDenseOptimizer optimizer, float *values, int64_t n_values)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_DENSE);

  PetscFunctionBegin;
  optimizer->values = values;
  optimizer->n_values = n_values;
  if (!optimizer->n_tensors) PetscCall(TrsDenseOptimizerSetTensors(optimizer, 1, (const int64_t[]){0}));
  optimizer->first[optimizer->n_tensors] = n_values;
  for (int i = 0; i < n_states(optimizer->args.kind); i++) {
    PetscCall(optimizer->device->alloc(n_values * (int64_t)sizeof(float), (void **)&optimizer->state[i]));
  }
  if (optimizer->average_decay > 0.0) {
    PetscCall(optimizer->device->alloc(n_values * (int64_t)sizeof(float), (void **)&optimizer->average));
    PetscCall(optimizer->device->alloc(n_values * (int64_t)sizeof(float), (void **)&optimizer->aside));
  }
  PetscCall(optimizer->device->alloc(2 * (int64_t)sizeof(double), (void **)&optimizer->squares));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Update tensor by tensor, because lamb's step depends on a tensor's norms. */
static PetscErrorCode apply_lamb(TrsDenseOptimizer o, TrsStream stream)
{
  PetscFunctionBegin;
  for (int i = 0; i < o->n_tensors; i++) {
    const int64_t at = o->first[i];
    TrsDenseOptimizerArgs args = o->args;

    if (args.operands) args.operands = (char *)args.operands + at * TrsDTypeBytes(TRS_BF16);
    PetscCall(o->compute->lamb_apply(stream, o->first[i + 1] - at, &args, o->state[0] + at, o->state[1] + at,
                                     o->squares, o->values + at));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode copy_values(TrsDenseOptimizer o, TrsStream stream, float *to, const float *from)
{
  PetscFunctionBegin;
  PetscCall(o->device->copy(to, from, o->n_values * (int64_t)sizeof(float), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Compute average += (1 - decay) (weights - average). It is done as a step of sgd on the average,
  with learning rate 1 and weight decay 1 - decay, and with the weights in the role of the gradient.
*/
static PetscErrorCode average_values(TrsDenseOptimizer o, TrsStream stream)
{
  const float rest = (float)(1.0 - o->average_decay);
  const TrsDenseOptimizerArgs args = {
      .kind = TRS_DENSE_SGD, .learning_rate = 1.0f, .weight_decay = rest, .grad_scale = -rest, .step = 1};

  PetscFunctionBegin;
  if (o->has_average)
    PetscCall(o->compute->dense_update(stream, o->n_values, &args, o->values, o->average, NULL, NULL));
  else
    PetscCall(copy_values(o, stream, o->average, o->values));
  o->has_average = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseOptimizerFillAverage(TrsDenseOptimizer o, TrsStream stream)
{
  PetscFunctionBegin;
  if (o->average && !o->has_average) PetscCall(copy_values(o, stream, o->average, o->values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsDenseOptimizerContinueAverage(TrsDenseOptimizer optimizer)
{
  optimizer->has_average = (PetscBool)(optimizer->average != NULL);
}

PetscErrorCode TrsDenseOptimizerSwapAverage(TrsDenseOptimizer o, TrsStream stream)
{
  PetscFunctionBegin;
  if (!o->has_average) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(copy_values(o, stream, o->aside, o->values));
  PetscCall(copy_values(o, stream, o->values, o->average));
  PetscCall(copy_values(o, stream, o->average, o->aside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void set_step(TrsDenseOptimizerArgs *args, double learning_rate, int64_t step, double scale)
{
  args->step = step;
  args->learning_rate = (float)(learning_rate * scale);
}

TrsUpdateNumbers TrsDenseOptimizerNumbers(TrsDenseOptimizer optimizer, int64_t step, double scale)
{
  TrsDenseOptimizerArgs args = optimizer->args;

  set_step(&args, optimizer->learning_rate, step, scale);
  return TrsUpdateNumbersOf(&args);
}

void TrsDenseOptimizerSetNumbers(TrsDenseOptimizer optimizer, const TrsUpdateNumbers *now)
{
  optimizer->args.now = now;
}

void TrsDenseOptimizerSetOperands(TrsDenseOptimizer optimizer, void *operands)
{
  optimizer->args.operands = operands;
}

PetscErrorCode TrsDenseOptimizerStep(TrsDenseOptimizer optimizer, TrsStream stream, int64_t step,
                                     double scale, const float *grads)
{
  TrsDenseOptimizerArgs *args = &optimizer->args;

  PetscFunctionBegin;
  set_step(args, optimizer->learning_rate, step, scale);
  args->grad_scale = 1.0f;
  /* The update reads the norm on the device, so the host need not wait for the backward. */
  if (optimizer->max_gradient_norm > 0.0) {
    PetscCall(optimizer->compute->sum_of_squares(stream, optimizer->n_values, grads, optimizer->squares));
    args->squares = optimizer->squares;
    args->max_norm = optimizer->max_gradient_norm;
  }
  PetscCall(optimizer->compute->dense_update(stream, optimizer->n_values, args, grads, optimizer->values,
                                             optimizer->state[0], optimizer->state[1]));
  if (args->kind == TRS_DENSE_LAMB) PetscCall(apply_lamb(optimizer, stream));
  if (optimizer->average) PetscCall(average_values(optimizer, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseOptimizerStates(TrsDenseOptimizer optimizer, int *n,
                                       const char *names[TRS_DENSE_MAX_STATES],
                                       float *states[TRS_DENSE_MAX_STATES])
{
  PetscFunctionBegin;
  *n = n_states(optimizer->args.kind);
  for (int i = 0; i < *n; i++) {
    names[i] = kinds[optimizer->args.kind].state[i];
    states[i] = optimizer->state[i];
  }
  if (optimizer->average) {
    names[*n] = TRS_DENSE_AVERAGE;
    states[(*n)++] = optimizer->average;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool TrsDenseIsAverage(const char *path)
{
  const char *name = strrchr(path, '/');

  return (PetscBool)(strncmp(path, "dense_optimizer/", 16) == 0 && strcmp(name + 1, TRS_DENSE_AVERAGE) == 0);
}

const char *TrsDenseOptimizerName(TrsDenseOptimizer optimizer)
{
  return kinds[optimizer->args.kind].word;
}

PetscErrorCode TrsDenseOptimizerDestroy(TrsDenseOptimizer *optimizer)
{
  PetscFunctionBegin;
  if (!*optimizer) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_DENSE_MAX_STATES; i++)
    PetscCall((*optimizer)->device->release((void **)&(*optimizer)->state[i]));
  PetscCall((*optimizer)->device->release((void **)&(*optimizer)->average));
  PetscCall((*optimizer)->device->release((void **)&(*optimizer)->aside));
  PetscCall((*optimizer)->device->release((void **)&(*optimizer)->squares));
  PetscCall(PetscFree((*optimizer)->first));
  PetscCall(PetscFree(*optimizer));
  PetscFunctionReturn(PETSC_SUCCESS);
}
