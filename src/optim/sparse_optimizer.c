/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/sparse_optimizer.h"

#define NAMES \
  "none,sgd,adagrad,rowwise_adagrad,adam,partial_rowwise_adam,lamb,partial_rowwise_lamb,lars_sgd,lion," \
  "shampoo"

static const TrsOptionSpec specs[] = {
    {"-embedding_optimizer", TRS_OPTION_ENUM, "rowwise_adagrad", NULL, NAMES, NULL,
     "Optimizer of the embedding tables, fused into their backward; none: for plan and predict"},
    {"-embedding_learning_rate", TRS_OPTION_REAL, "0.01", "[0,]", NULL, NULL,
     "Learning rate of the embedding tables"},
    {"-embedding_eps", TRS_OPTION_REAL, "1e-8", "[0,]", NULL, NULL,
     "Added to the root: the adagrads, adams and lambs"},
    {"-embedding_beta1", TRS_OPTION_REAL, "0.9", "[0,1)", NULL, NULL,
     "Decay of the mean of the gradient: adams, lambs, lion"},
    {"-embedding_beta2", TRS_OPTION_REAL, "0.999", "[0,1)", NULL, NULL,
     "Decay of the mean of its square: adams, lambs; of lion's mean"},
    {"-embedding_weight_decay", TRS_OPTION_REAL, "0", "[0,]", NULL, NULL,
     "Weight decay; not for sgd and adagrad; rowwise_adagrad needs a mode for it"},
    {"-embedding_weight_decay_mode", TRS_OPTION_ENUM, "none", NULL,
     "none,l2,decouple,counter,cowclip,decouple_global", NULL,
     "rowwise_adagrad: none ignores the weight decay, l2 adds it to the gradient, decouple shrinks the "
     "weight; the rest is refused"},
    {"-embedding_eta", TRS_OPTION_REAL, "0.001", "[0,]", NULL, NULL, "lars_sgd: trust coefficient"},
    {"-embedding_momentum", TRS_OPTION_REAL, "0.9", "[0,1)", NULL, NULL, "lars_sgd: momentum"},
    {"-embedding_max_gradient", TRS_OPTION_REAL, NULL, "(0,]", NULL, NULL,
     "Clamp each element of the pooled output's gradient to +- this; default: no clamping"},
    {"-embedding_stochastic_rounding", TRS_OPTION_BOOL, "true", NULL, NULL, NULL,
     "Round fp16 and bf16 tables stochastically when they are stored; false: to nearest even"},
};
const TrsOptionGroup trs_sparse_optimizer_options = TRS_OPTION_GROUP("Embedding optimizer", specs);

typedef struct {
  const char *name;
  const char *state[TRS_SPARSE_MAX_STATES];
  int n_states;
  PetscBool rowwise[TRS_SPARSE_MAX_STATES];
  PetscBool couples_columns; /* a row's update depends on the row as a whole */
} TrsSparseOptimizer;

static const TrsSparseOptimizer optimizers[TRS_N_OPTIMS] = {
    [TRS_OPTIM_NONE] = {.name = "none"},
    [TRS_OPTIM_SGD] = {.name = "sgd"},
    [TRS_OPTIM_ADAGRAD] = {"adagrad", {"momentum1"}, 1, {PETSC_FALSE}, PETSC_FALSE},
    [TRS_OPTIM_ROWWISE_ADAGRAD] = {"rowwise_adagrad", {"momentum1"}, 1, {PETSC_TRUE}, PETSC_TRUE},
    [TRS_OPTIM_ADAM] = {"adam", {"exp_avg", "exp_avg_sq"}, 2, {PETSC_FALSE, PETSC_FALSE}, PETSC_FALSE},
    [TRS_OPTIM_PARTIAL_ROWWISE_ADAM] =
        {"partial_rowwise_adam", {"exp_avg", "exp_avg_sq"}, 2, {PETSC_FALSE, PETSC_TRUE}, PETSC_TRUE},
    [TRS_OPTIM_LAMB] = {"lamb", {"exp_avg", "exp_avg_sq"}, 2, {PETSC_FALSE, PETSC_FALSE}, PETSC_TRUE},
    [TRS_OPTIM_PARTIAL_ROWWISE_LAMB] =
        {"partial_rowwise_lamb", {"exp_avg", "exp_avg_sq"}, 2, {PETSC_FALSE, PETSC_TRUE}, PETSC_TRUE},
    [TRS_OPTIM_LARS_SGD] = {"lars_sgd", {"momentum1"}, 1, {PETSC_FALSE}, PETSC_TRUE},
    [TRS_OPTIM_LION] = {"lion", {"exp_avg"}, 1, {PETSC_FALSE}, PETSC_FALSE},
    [TRS_OPTIM_SHAMPOO] = {.name = "shampoo"},
};

/* Numbers of the option group into args. */
static PetscErrorCode read_numbers(TrsOptions options, TrsSparseOptimizerArgs *args)
{
  const struct {
    const char *name;
    float *to;
  } reals[] = {
      {"-embedding_learning_rate", &args->learning_rate},
      {"-embedding_eps", &args->eps},
      {"-embedding_beta1", &args->beta1},
      {"-embedding_beta2", &args->beta2},
      {"-embedding_weight_decay", &args->weight_decay},
      {"-embedding_eta", &args->eta},
      {"-embedding_momentum", &args->momentum},
  };

  PetscFunctionBegin;
  for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++) {
    double value;

    PetscCall(TrsOptionsGetReal(options, reals[i].name, &value, NULL));
    *reals[i].to = (float)value;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSparseOptimizerFromOptions(TrsOptions options, TrsSparseOptimizerConfig *config)
{
  TrsSparseOptimizerArgs *args = &config->args;
  double max_gradient = 0.0;
  int kind, mode;

  PetscFunctionBegin;
  *config = (TrsSparseOptimizerConfig){0};
  PetscCall(TrsOptionsGetEnum(options, "-embedding_optimizer", &kind, NULL));
  if (kind == TRS_OPTIM_SHAMPOO) {
    PetscCall(TrsOptionError(options, "-embedding_optimizer",
                             "shampoo is not supported for sparse embedding tables: its preconditioners "
                             "couple all rows of a table, those "
                             "of a batch alone do not define them"));
  }
  PetscCall(TrsOptionsGetEnum(options, "-embedding_weight_decay_mode", &mode, NULL));
  if (mode > TRS_DECAY_DECOUPLE) {
    PetscCall(TrsOptionError(options, "-embedding_weight_decay_mode",
                             "FBGEMM's counter, cowclip and decouple_global are not supported"));
  }
  PetscCall(read_numbers(options, args));
  if (args->weight_decay > 0.0f && (kind == TRS_OPTIM_SGD || kind == TRS_OPTIM_ADAGRAD)) {
    PetscCall(TrsOptionError(options, "-embedding_weight_decay", "%s takes no weight decay",
                             optimizers[kind].name));
  }
  PetscCall(TrsOptionsGetReal(options, "-embedding_max_gradient", &max_gradient, NULL));
  PetscCall(TrsOptionsGetBool(options, "-embedding_stochastic_rounding", &config->stochastic_rounding, NULL));
  args->kind = (TrsSparseOptimizerKind)kind;
  args->weight_decay_mode = (TrsWeightDecayMode)mode;
  config->max_gradient = (float)max_gradient;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TrsSparseOptimizerStates(TrsSparseOptimizerKind kind, int *n, const char *names[TRS_SPARSE_MAX_STATES],
                              PetscBool rowwise[TRS_SPARSE_MAX_STATES])
{
  const TrsSparseOptimizer *optimizer = &optimizers[kind];

  *n = optimizer->n_states;
  for (int i = 0; i < *n; i++) {
    names[i] = optimizer->state[i];
    rowwise[i] = optimizer->rowwise[i];
  }
}

const char *TrsSparseOptimizerName(TrsSparseOptimizerKind kind)
{
  return optimizers[kind].name;
}

PetscBool TrsSparseOptimizerCouplesColumns(TrsSparseOptimizerKind kind)
{
  return optimizers[kind].couples_columns;
}
