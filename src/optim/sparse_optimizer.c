/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/sparse_optimizer.h"

static const TrsOptionSpec specs[] = {
    {"-embedding_optimizer", TRS_OPTION_ENUM, "rowwise_adagrad", NULL, TRS_SPARSE_OPTIMIZERS, NULL,
     "optimizer of the embedding tables, fused into their backward; none: for plan and predict"},
    {"-embedding_learning_rate", TRS_OPTION_REAL, "0.01", "[0,]", NULL, NULL,
     "learning rate of the embedding tables"},
    {"-embedding_eps", TRS_OPTION_REAL, "1e-8", "[0,]", NULL, NULL,
     "added to the root: the adagrads, adams and lambs"},
    {"-embedding_beta1", TRS_OPTION_REAL, "0.9", "[0,1)", NULL, NULL,
     "decay of the mean of the gradient: adams, lambs, lion"},
    {"-embedding_beta2", TRS_OPTION_REAL, "0.999", "[0,1)", NULL, NULL,
     "decay of the mean of its square: adams, lambs; of lion's mean"},
    {"-embedding_weight_decay", TRS_OPTION_REAL, "0", "[0,]", NULL, NULL,
     "weight decay; not for sgd and adagrad; rowwise_adagrad needs a mode for it"},
    {"-embedding_weight_decay_mode", TRS_OPTION_ENUM, "none", NULL, TRS_SPARSE_DECAY_MODES, NULL,
     "rowwise_adagrad: none ignores the weight decay, l2 adds it to the gradient, decouple shrinks the "
     "weight; the rest is refused"},
    {"-embedding_eta", TRS_OPTION_REAL, "0.001", "[0,]", NULL, NULL, "lars_sgd: trust coefficient"},
    {"-embedding_momentum", TRS_OPTION_REAL, "0.9", "[0,1)", NULL, NULL, "lars_sgd: momentum"},
    {"-embedding_max_gradient", TRS_OPTION_REAL, NULL, "(0,]", NULL, NULL,
     "clamp each element of the pooled output's gradient to +- this; default: no clamping"},
    {"-embedding_stochastic_rounding", TRS_OPTION_BOOL, "true", NULL, NULL, NULL,
     "round fp16 and bf16 tables stochastically when they are stored; false: to nearest even"},
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

/* The option that sets a key: -table_<name>_<key> or -tables_<key> where one is given, else -embedding_<key>. table NULL: the latter. */
static PetscErrorCode name_of(TrsOptions options, const char *table, const char *key, char *name, size_t size)
{
  const char *own;
  const char *source;
  PetscBool is_default = PETSC_TRUE;

  PetscFunctionBegin;
  if (table) {
    PetscCall(TrsOptionsObjectName(options, "table", table, key, &own));
    PetscCall(TrsOptionsSource(options, own, &source));
    PetscCall(PetscStrcmp(source, "default", &is_default));
  }
  if (is_default)
    PetscCall(PetscSNPrintf(name, size, "-embedding_%s", key));
  else
    PetscCall(PetscStrncpy(name, own, size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_enum(TrsOptions options, const char *table, const char *key, int *value)
{
  char name[PETSC_MAX_PATH_LEN];

  PetscFunctionBegin;
  PetscCall(name_of(options, table, key, name, sizeof(name)));
  PetscCall(TrsOptionsGetEnum(options, name, value, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_real(TrsOptions options, const char *table, const char *key, float *to)
{
  char name[PETSC_MAX_PATH_LEN];
  double value = 0.0;

  PetscFunctionBegin;
  PetscCall(name_of(options, table, key, name, sizeof(name)));
  PetscCall(TrsOptionsGetReal(options, name, &value, NULL));
  *to = (float)value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What has no meaning, told of the option that asks for it. */
static PetscErrorCode check(TrsOptions options, const char *table, int kind, int mode, float weight_decay)
{
  char name[PETSC_MAX_PATH_LEN];

  PetscFunctionBegin;
  if (kind == TRS_OPTIM_SHAMPOO) {
    PetscCall(name_of(options, table, "optimizer", name, sizeof(name)));
    PetscCall(TrsOptionError(options, name,
                             "shampoo is not supported for sparse embedding tables: its preconditioners "
                             "couple all rows of a table, those of a batch alone do not define them"));
  }
  if (mode > TRS_DECAY_DECOUPLE) {
    PetscCall(name_of(options, table, "weight_decay_mode", name, sizeof(name)));
    PetscCall(
        TrsOptionError(options, name, "FBGEMM's counter, cowclip and decouple_global are not supported"));
  }
  if (weight_decay > 0.0f && (kind == TRS_OPTIM_SGD || kind == TRS_OPTIM_ADAGRAD)) {
    PetscBool own_optimizer, own_decay;

    PetscCall(name_of(options, table, "optimizer", name, sizeof(name)));
    PetscCall(PetscStrncmp(name, "-table_", 7, &own_optimizer));
    PetscCall(name_of(options, table, "weight_decay", name, sizeof(name)));
    PetscCall(PetscStrncmp(name, "-table_", 7, &own_decay));
    if (!own_optimizer && !own_decay) table = NULL; /* it is so for all */
    PetscCall(TrsOptionError(options, name, "%s%s%s takes no weight decay", optimizers[kind].name,
                             table ? " of table " : "", table ? table : ""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A table's optimizer, or with NULL that of all tables without one. */
static PetscErrorCode read_optimizer(TrsOptions options, const char *table, TrsSparseOptimizerArgs *args,
                                     float *max_gradient)
{
  const struct {
    const char *key;
    float *to;
  } reals[] = {
      {"learning_rate", &args->learning_rate},
      {"eps", &args->eps},
      {"beta1", &args->beta1},
      {"beta2", &args->beta2},
      {"weight_decay", &args->weight_decay},
      {"eta", &args->eta},
      {"momentum", &args->momentum},
      {"max_gradient", max_gradient},
  };
  int kind, mode;

  PetscFunctionBegin;
  *args = (TrsSparseOptimizerArgs){.step = 0};
  PetscCall(read_enum(options, table, "optimizer", &kind));
  PetscCall(read_enum(options, table, "weight_decay_mode", &mode));
  for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
    PetscCall(read_real(options, table, reals[i].key, reals[i].to));
  PetscCall(check(options, table, kind, mode, args->weight_decay));
  args->kind = (TrsSparseOptimizerKind)kind;
  args->weight_decay_mode = (TrsWeightDecayMode)mode;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSparseOptimizerKindOf(TrsOptions options, const char *table, TrsSparseOptimizerKind *kind)
{
  int value;

  PetscFunctionBegin;
  PetscCall(read_enum(options, table, "optimizer", &value));
  *kind = (TrsSparseOptimizerKind)value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool same_args(const TrsSparseOptimizerArgs *a, const TrsSparseOptimizerArgs *b)
{
  return (PetscBool)(a->kind == b->kind && a->weight_decay_mode == b->weight_decay_mode &&
                     a->learning_rate == b->learning_rate && a->eps == b->eps && a->beta1 == b->beta1 &&
                     a->beta2 == b->beta2 && a->weight_decay == b->weight_decay && a->eta == b->eta &&
                     a->momentum == b->momentum);
}

PetscErrorCode TrsSparseOptimizersFromOptions(TrsOptions options, const TrsTableConfigs *tables,
                                              TrsSparseOptimizers *o)
{
  PetscFunctionBegin;
  *o = (TrsSparseOptimizers){.n = 0};
  PetscCall(PetscCalloc1((size_t)PetscMax(tables->n, 1), &o->args));
  PetscCall(PetscCalloc1((size_t)PetscMax(tables->n, 1), &o->of_table));
  PetscCall(PetscCalloc1((size_t)PetscMax(tables->n, 1), &o->max_gradient));
  for (int t = 0; t < tables->n; t++) {
    TrsSparseOptimizerArgs args;
    int i = 0;

    PetscCall(read_optimizer(options, tables->table[t].name, &args, &o->max_gradient[t]));
    while (i < o->n && !same_args(&o->args[i], &args)) i++;
    if (i == o->n) o->args[o->n++] = args;
    o->of_table[t] = i;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSparseOptimizersFree(TrsSparseOptimizers *o)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(o->args));
  PetscCall(PetscFree(o->of_table));
  PetscCall(PetscFree(o->max_gradient));
  o->n = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const TrsSparseOptimizerArgs *TrsSparseOptimizersOf(const TrsSparseOptimizers *o, int table)
{
  return &o->args[o->of_table ? o->of_table[table] : 0];
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
