/* SPDX-License-Identifier: BSD-3-Clause */
#include "optim/sparse_optimizer.h"

static const TrsOptionSpec specs[] = {
    {"-embedding_optimizer", TRS_OPTION_ENUM, "rowwise_adagrad", NULL, TRS_CHOICES(TRS_EMBEDDING_OPTIMIZERS),
     NULL, "optimizer of the embedding tables, fused into their backward; none: rows stay as they are"},
#define NUMBER_OF_ALL(word, fallback, range, help) \
  {"-embedding_" #word, TRS_OPTION_REAL, fallback, range, NULL, NULL, help},
    TRS_OPTIMIZER_NUMBERS(NUMBER_OF_ALL){
        "-embedding_weight_decay_mode", TRS_OPTION_ENUM, "none", NULL, TRS_SPARSE_DECAY_MODES, NULL,
        "rowwise_adagrad: how the weight decay is used; words other than these three are refused. none: "
        "it is ignored. l2: it is added to the gradient. decouple: it shrinks the weight"},
    {"-embedding_max_gradient", TRS_OPTION_REAL, NULL, "(0,]", NULL, NULL,
     "clamp each element of the pooled output's gradient to +- this; default: no clamping"},
    {"-embedding_stochastic_rounding", TRS_OPTION_BOOL, "true", NULL, NULL, NULL,
     "round fp16 and bf16 tables stochastically when they are stored; false: to nearest even"},
};
const TrsOptionGroup trs_sparse_optimizer_options = TRS_OPTION_GROUP("Embedding optimizer", specs);

/* The names of the optimizers and of their states. */
static const struct {
  const char *name, *state[TRS_OPTIMIZER_STATES];
  TrsStateShape shape[TRS_OPTIMIZER_STATES];
  enum { TRS_APART, TRS_COUPLED, TRS_BY_SQUARES } columns;
  enum { TRS_KEEPS, TRS_DECAYS } decay;
} optimizers[] = {
#define OPTIMIZER(KIND, word, shape0, name0, shape1, name1, planned, columns, decay) \
  {#word, {name0, name1}, {TRS_STATE_##shape0, TRS_STATE_##shape1}, TRS_##columns, TRS_##decay},
    TRS_EMBEDDING_OPTIMIZERS(OPTIMIZER)};

/*
  Get the name of the option that sets a table's value for a key: -table_<name>_<key> or
  -tables_<key> if given, otherwise -embedding_<key>. If `table` is NULL, the name is always
  -embedding_<key>.
*/
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

/* Reject meaningless settings. The message names the option. */
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
  if (weight_decay > 0.0f && optimizers[kind].decay == TRS_KEEPS) {
    PetscBool own_optimizer, own_decay;

    PetscCall(name_of(options, table, "optimizer", name, sizeof(name)));
    PetscCall(PetscStrncmp(name, "-table_", 7, &own_optimizer));
    PetscCall(name_of(options, table, "weight_decay", name, sizeof(name)));
    PetscCall(PetscStrncmp(name, "-table_", 7, &own_decay));
    if (!own_optimizer && !own_decay) table = NULL; /* the setting applies to all tables */
    PetscCall(TrsOptionError(options, name, "%s%s%s takes no weight decay", optimizers[kind].name,
                             table ? " of table " : "", table ? table : ""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Check the learning rate for ftrl. It must be positive and constant, because ftrl computes a weight
  from its states and the learning rate.
*/
static PetscErrorCode check_ftrl(TrsOptions options, const char *table, float learning_rate)
{
  char name[PETSC_MAX_PATH_LEN];
  const int *policies = NULL;
  int n = 0;

  PetscFunctionBegin;
  if (learning_rate == 0.0f) {
    PetscCall(name_of(options, table, "learning_rate", name, sizeof(name)));
    PetscCall(TrsOptionError(options, name, "ftrl needs a learning rate above 0"));
  }
  PetscCall(TrsOptionsGetEnums(options, "-schedule_policies", &n, &policies, NULL));
  if (n > 0) {
    PetscCall(name_of(options, table, "optimizer", name, sizeof(name)));
    PetscCall(TrsOptionError(options, name,
                             "ftrl takes no -schedule_policies: a weight is a function of its gradients and "
                             "of one learning rate"));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Read a table's optimizer. If `table` is NULL, read the optimizer for all tables without their own.
*/
static PetscErrorCode read_optimizer(TrsOptions options, const char *table, TrsSparseOptimizerArgs *args,
                                     float *max_gradient)
{
  const struct {
    const char *key;
    float *to;
  } reals[] = {
#define NUMBER_TO(word, ...) {#word, &args->word},
      TRS_OPTIMIZER_NUMBERS(NUMBER_TO){"max_gradient", max_gradient},
  };
  int kind, mode;

  PetscFunctionBegin;
  *args = (TrsSparseOptimizerArgs){.step = 0};
  PetscCall(read_enum(options, table, "optimizer", &kind));
  PetscCall(read_enum(options, table, "weight_decay_mode", &mode));
  for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
    PetscCall(read_real(options, table, reals[i].key, reals[i].to));
  PetscCall(check(options, table, kind, mode, args->weight_decay));
  if (kind == TRS_OPTIM_FTRL) PetscCall(check_ftrl(options, table, args->learning_rate));
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
#define SAME_NUMBER(word, ...) &&a->word == b->word
  return (PetscBool)(a->kind == b->kind &&
                     a->weight_decay_mode == b->weight_decay_mode TRS_OPTIMIZER_NUMBERS(SAME_NUMBER));
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

    PetscCall(read_optimizer(options, TrsTableOptionName(&tables->table[t]), &args, &o->max_gradient[t]));
    while (i < o->n && !same_args(&o->args[i], &args)) i++;
    if (i == o->n) o->args[o->n++] = args;
    o->of_table[t] = i;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsSparseOptimizersCheck(const TrsSparseOptimizers *o, const TrsComputeOps *compute)
{
  PetscFunctionBegin;
  for (int i = 0; i < o->n; i++)
    PetscCheck(compute->tbe_has_step(o->args[i].kind), PETSC_COMM_SELF, TRS_ERR_UNAVAILABLE,
               "-embedding_optimizer or a table's: %s has no update on device %s",
               optimizers[o->args[i].kind].name, compute->name);
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

void TrsSparseOptimizerStates(TrsSparseOptimizerKind kind, int *n, const char *names[TRS_OPTIMIZER_STATES],
                              PetscBool rowwise[TRS_OPTIMIZER_STATES])
{
  *n = 0;
  for (int i = 0; i < TRS_OPTIMIZER_STATES && optimizers[kind].shape[i] != TRS_STATE_ABSENT; i++, ++*n) {
    names[i] = optimizers[kind].state[i];
    rowwise[i] = (PetscBool)(optimizers[kind].shape[i] == TRS_STATE_ROW);
  }
}

void TrsSparseOptimizerStateBytes(TrsSparseOptimizerKind kind, int64_t rows, int64_t cols, double *of_rows,
                                  double *of_elements)
{
  *of_rows = *of_elements = 0;
  for (int i = 0; i < TRS_OPTIMIZER_STATES && optimizers[kind].shape[i] != TRS_STATE_ABSENT; i++) {
    if (optimizers[kind].shape[i] == TRS_STATE_ROW)
      *of_rows += (double)(rows * (int64_t)sizeof(float));
    else
      *of_elements += (double)(rows * cols * (int64_t)sizeof(float));
  }
}

const char *TrsSparseOptimizerName(TrsSparseOptimizerKind kind)
{
  return optimizers[kind].name;
}

PetscBool TrsSparseOptimizerCouplesColumns(TrsSparseOptimizerKind kind)
{
  return (PetscBool)(optimizers[kind].columns != TRS_APART);
}

PetscBool TrsSparseOptimizerNeedsSquaresAlone(const TrsSparseOptimizerArgs *args)
{
  const PetscBool adds_decay = (PetscBool)(args->kind == TRS_OPTIM_ROWWISE_ADAGRAD &&
                                           args->weight_decay_mode == TRS_DECAY_L2);

  return (PetscBool)(optimizers[args->kind].columns == TRS_BY_SQUARES && !adds_decay);
}
