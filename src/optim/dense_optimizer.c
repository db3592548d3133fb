/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/dense_optimizer.h"

#include "core/buffer.h"

struct TrsDenseOptimizerImpl {
  const TrsDeviceOps *device;
  const TrsComputeOps *compute;
  TrsDenseOptimizerArgs args;
  double learning_rate;
  double max_gradient_norm; /* 0: no clipping */
  float *values;            /* borrowed */
  int64_t n_values;
  float *state[TRS_DENSE_MAX_STATES];
  double *norm; /* device: sum of squares of the gradient */
};

static const TrsOptionSpec specs[] = {
    {"-dense_optimizer", TRS_OPTION_ENUM, "sgd", NULL, "sgd,adagrad,adam", NULL,
     "optimizer of the dense layers, as in torch.optim"},
    {"-dense_learning_rate", TRS_OPTION_REAL, "0.01", "[0,]", NULL, NULL,
     "learning rate of the dense layers"},
    {"-dense_eps", TRS_OPTION_REAL, NULL, "[0,]", NULL, NULL,
     "added to the root of adagrad and adam; default: 1e-10 and 1e-8"},
    {"-dense_beta1", TRS_OPTION_REAL, "0.9", "[0,1)", NULL, NULL, "adam: decay of the mean of the gradient"},
    {"-dense_beta2", TRS_OPTION_REAL, "0.999", "[0,1)", NULL, NULL, "adam: decay of the mean of its square"},
    {"-dense_weight_decay", TRS_OPTION_REAL, "0", "[0,]", NULL, NULL,
     "this times the weight is added to the gradient"},
    {"-dense_max_gradient_norm", TRS_OPTION_REAL, NULL, "(0,]", NULL, NULL,
     "scale the dense gradient down to this 2-norm when it is longer; default: no clipping"},
};
const TrsOptionGroup trs_dense_optimizer_options = TRS_OPTION_GROUP("Dense optimizer", specs);

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
  double eps, beta1, beta2, weight_decay;
  int kind;

  PetscFunctionBegin;
  PetscCall(TrsOptionsGetEnum(options, "-dense_optimizer", &kind, NULL));
  eps = kind == TRS_DENSE_ADAM ? 1e-8 : 1e-10;
  PetscCall(TrsOptionsGetReal(options, "-dense_learning_rate", &optimizer->learning_rate, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_eps", &eps, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_beta1", &beta1, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_beta2", &beta2, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_weight_decay", &weight_decay, NULL));
  PetscCall(TrsOptionsGetReal(options, "-dense_max_gradient_norm", &optimizer->max_gradient_norm, NULL));
  args->kind = (TrsDenseOptimizerKind)kind;
  args->eps = (float)eps;
  args->beta1 = beta1;
  args->beta2 = beta2;
  args->weight_decay = (float)weight_decay;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static int n_states(TrsDenseOptimizerKind kind)
{
  return kind == TRS_DENSE_ADAM ? 2 : kind == TRS_DENSE_ADAGRAD ? 1 : 0;
}

PetscErrorCode TrsDenseOptimizerSetUp(TrsDenseOptimizer optimizer, float *values, int64_t n_values)
{
  const TrsMemoryKind before = TrsMemoryFor(TRS_MEMORY_DENSE);

  PetscFunctionBegin;
  optimizer->values = values;
  optimizer->n_values = n_values;
  for (int i = 0; i < n_states(optimizer->args.kind); i++) {
    PetscCall(optimizer->device->alloc(n_values * (int64_t)sizeof(float), (void **)&optimizer->state[i]));
  }
  PetscCall(optimizer->device->alloc((int64_t)sizeof(double), (void **)&optimizer->norm));
  (void)TrsMemoryFor(before);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseOptimizerStep(TrsDenseOptimizer optimizer, TrsStream stream, int64_t step,
                                     double scale, const float *grads)
{
  TrsDenseOptimizerArgs *args = &optimizer->args;

  PetscFunctionBegin;
  args->step = step;
  args->learning_rate = (float)(optimizer->learning_rate * scale);
  args->grad_scale = 1.0f;
  /* The update reads the norm on the device, so no host waits for the backward. */
  if (optimizer->max_gradient_norm > 0.0) {
    PetscCall(optimizer->compute->sum_of_squares(stream, optimizer->n_values, grads, optimizer->norm));
    args->squares = optimizer->norm;
    args->max_norm = optimizer->max_gradient_norm;
  }
  PetscCall(optimizer->compute->dense_update(stream, optimizer->n_values, args, grads, optimizer->values,
                                             optimizer->state[0], optimizer->state[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseOptimizerStates(TrsDenseOptimizer optimizer, int *n,
                                       const char *names[TRS_DENSE_MAX_STATES],
                                       float *states[TRS_DENSE_MAX_STATES])
{
  static const char *const adam[TRS_DENSE_MAX_STATES] = {"exp_avg", "exp_avg_sq"};

  PetscFunctionBegin;
  *n = n_states(optimizer->args.kind);
  for (int i = 0; i < *n; i++) {
    names[i] = optimizer->args.kind == TRS_DENSE_ADAM ? adam[i] : "sum";
    states[i] = optimizer->state[i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsDenseOptimizerDestroy(TrsDenseOptimizer *optimizer)
{
  PetscFunctionBegin;
  if (!*optimizer) PetscFunctionReturn(PETSC_SUCCESS);
  for (int i = 0; i < TRS_DENSE_MAX_STATES; i++)
    PetscCall((*optimizer)->device->release((void **)&(*optimizer)->state[i]));
  PetscCall((*optimizer)->device->release((void **)&(*optimizer)->norm));
  PetscCall(PetscFree(*optimizer));
  PetscFunctionReturn(PETSC_SUCCESS);
}
