/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_sequence.h"

#include "spec/table_keys.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static const char *const words[] = {TRS_SEQUENCE_POOLINGS(TRS_WORD_TEXT)};

static const struct {
  const char *key;
  TrsSequencePoolingKind taken_by;
} keys[] = {
#define KEY(word, type, fallback, range, choices, unit, KIND, help) {#word, TRS_SEQUENCE_POOLING_##KIND},
    TRS_SEQUENCE_KEYS(KEY)};

/* Reject a key that was given for this table by name if the table does not use it. */
static PetscErrorCode refuse(TrsOptions options, const TrsTableConfig *table, const char *key)
{
  const char *name, *source;
  PetscBool own;

  PetscFunctionBegin;
  PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), key, &name));
  PetscCall(TrsOptionsSource(options, name, &source));
  PetscCall(TrsTableKeyIsOwn(options, table, key, &own));
  if (!own || strcmp(source, "default") == 0) PetscFunctionReturn(PETSC_SUCCESS);
  if (table->pooling != TRS_POOLING_NONE)
    FAIL(key, "table \"%s\" has pooling %s; only a sequence table (pooling none) takes it", table->name,
         TrsPoolingName(table->pooling));
  FAIL(key, "table \"%s\" has sequence_pooling %s, which takes no %s", table->name,
       words[table->sequence_pooling], key);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_concat(TrsOptions options, TrsTableConfig *table)
{
  PetscBool set;
  int64_t length = 1;

  PetscFunctionBegin;
  GET(Int, "sequence_length", &length, &set);
  if (!set)
    FAIL("sequence_length", "table \"%s\" concatenates its rows: give how many of a sample", table->name);
  if (length > INT32_MAX / table->embedding_dim)
    FAIL("sequence_length", "table \"%s\": %" PRId64 " rows of %d columns are too wide for the model",
         table->name, length, table->embedding_dim);
  table->sequence_length = (int)length;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_gru(TrsOptions options, TrsTableConfig *table)
{
  int64_t size = table->embedding_dim;

  PetscFunctionBegin;
  GET(Int, "gru_hidden_size", &size, NULL);
  table->gru_hidden_size = (int)size;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_din(TrsOptions options, TrsTableConfig *table)
{
  const char *target = NULL;
  const int64_t *sizes = NULL;
  PetscBool set;
  int activation;

  PetscFunctionBegin;
  GET(String, "din_target", &target, &set);
  if (!set)
    FAIL("din_target", "table \"%s\" compares its rows with a target: give a feature or a table",
         table->name);
  PetscCall(PetscStrallocpy(target, &table->din_target));
  GET(Ints, "din_arch", &table->n_din_arch, &sizes, NULL);
  PetscCall(PetscMalloc1((size_t)table->n_din_arch, &table->din_arch));
  PetscCall(PetscArraycpy(table->din_arch, sizes, (size_t)table->n_din_arch));
  GET(Enum, "din_activation", &activation, NULL);
  table->din_activation = (TrsMlpActivation)activation;
  GET(Bool, "din_softmax", &table->din_softmax, NULL);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode read_transformer(TrsOptions options, TrsTableConfig *table)
{
  int64_t width = 4 * (int64_t)table->embedding_dim;

  PetscFunctionBegin;
  GET(Int, "transformer_layers", &table->transformer_layers, NULL);
  GET(Int, "transformer_heads", &table->transformer_heads, NULL);
  if (table->embedding_dim % table->transformer_heads != 0)
    FAIL("transformer_heads", "table \"%s\": %" PRId64 " heads do not divide embedding_dim %d", table->name,
         table->transformer_heads, table->embedding_dim);
  GET(Int, "transformer_dim_feedforward", &width, NULL);
  table->transformer_width = width;
  GET(Bool, "transformer_causal", &table->transformer_causal, NULL);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  True if a model can switch from one pooling to the other. Sums, means and maxima have the same
  width.
*/
static PetscBool fit_each_other(int a, int b)
{
  const PetscBool plain_a = (PetscBool)(a == TRS_SEQUENCE_POOLING_MEAN || a == TRS_SEQUENCE_POOLING_MAX);
  const PetscBool plain_b = (PetscBool)(b == TRS_SEQUENCE_POOLING_MEAN || b == TRS_SEQUENCE_POOLING_MAX);

  return (PetscBool)(a == b || (plain_a && plain_b));
}

/*
  Reject the run's pooling if it does not fit the checkpoint's model: the model has parameters or
  columns that the pooling does not use, or lacks some that it needs. The table's pooling must be
  set; `kind` is its sequence_pooling.
*/
static PetscErrorCode check_model(TrsOptions options, const TrsTableConfig *table, int kind)
{
  const char *const object = TrsTableOptionName(table);
  const char *pooling = TrsOptionsModelValue(options, "table", object, "pooling");
  const char *word = TrsOptionsModelValue(options, "table", object, "sequence_pooling");
  const PetscBool is_sequence = (PetscBool)(table->pooling == TRS_POOLING_NONE);
  int was = TRS_SEQUENCE_POOLING_MEAN;

  PetscFunctionBegin;
  if (!pooling || !word) PetscFunctionReturn(PETSC_SUCCESS);
  if (strcasecmp(pooling, TrsPoolingName(TRS_POOLING_NONE)) == 0)
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
      if (strcasecmp(words[i], word) == 0) was = (int)i;
  if (fit_each_other(was, is_sequence ? kind : TRS_SEQUENCE_POOLING_MEAN)) PetscFunctionReturn(PETSC_SUCCESS);
  FAIL(is_sequence && strcasecmp(words[kind], word) != 0 ? "sequence_pooling" : "pooling",
       "the model's table \"%s\" has pooling %s and sequence_pooling %s; leave the option out", table->name,
       pooling, word);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsTableSequenceRead(TrsOptions options, TrsTableConfig *table)
{
  int kind = 0;

  PetscFunctionBegin;
  GET(Enum, "sequence_pooling", &kind, NULL);
  PetscCall(check_model(options, table, kind));
  if (table->pooling != TRS_POOLING_NONE) PetscCall(refuse(options, table, "sequence_pooling"));
  if (table->pooling == TRS_POOLING_NONE) {
    table->sequence_pooling = (TrsSequencePoolingKind)kind;
    table->sequence_length = 1;
  }
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
    if (table->pooling != TRS_POOLING_NONE || keys[i].taken_by != table->sequence_pooling)
      PetscCall(refuse(options, table, keys[i].key));
  if (table->pooling != TRS_POOLING_NONE) PetscFunctionReturn(PETSC_SUCCESS);
  if (table->sequence_pooling == TRS_SEQUENCE_POOLING_CONCAT) PetscCall(read_concat(options, table));
  if (table->sequence_pooling == TRS_SEQUENCE_POOLING_GRU) PetscCall(read_gru(options, table));
  if (table->sequence_pooling == TRS_SEQUENCE_POOLING_DIN) PetscCall(read_din(options, table));
  if (table->sequence_pooling == TRS_SEQUENCE_POOLING_TRANSFORMER)
    PetscCall(read_transformer(options, table));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Find the table and the feature of a target by name. The name is a feature's name, or the name of a
  table that has only one feature.
*/
static const TrsTableConfig *find_target(const TrsTableConfigs *tables, const char *name, int *k)
{
  for (int t = 0; t < tables->n; t++)
    for (*k = 0; *k < tables->table[t].n_features; ++*k)
      if (!strcmp(tables->table[t].features[*k], name)) return &tables->table[t];
  *k = 0;
  for (int t = 0; t < tables->n; t++)
    if (!strcmp(TrsTableOptionName(&tables->table[t]), name)) return &tables->table[t];
  return NULL;
}

PetscErrorCode TrsTableSequenceTargets(TrsOptions options, TrsTableConfigs *tables)
{
  PetscFunctionBegin;
  for (int t = 0; t < tables->n; t++) {
    TrsTableConfig *table = &tables->table[t];
    const TrsTableConfig *target;
    int k;

    if (!table->din_target) continue;
    target = find_target(tables, table->din_target, &k);
    if (!target)
      FAIL("din_target", "there is no feature and no table \"%s\"", table->din_target);
    else if (strcmp(target->features[k], table->din_target) != 0 && target->n_features > 1)
      FAIL("din_target", "table \"%s\" has %d features: name one of them", table->din_target,
           target->n_features);
    else if (target == table && table->n_features == 1)
      FAIL("din_target", "table \"%s\" has no other feature that could be compared with it", table->name);
    else if (target->pooling == TRS_POOLING_NONE &&
             (!TrsTableIsSequenceLayer(target) || TrsFeatureIsSequenceLayer(target, k)))
      FAIL("din_target",
           "\"%s\" is of the sequence table \"%s\" (pooling none); the target is a pooled embedding",
           table->din_target, target->name);
    else if (target->embedding_dim != table->embedding_dim)
      FAIL("din_target", "\"%s\" has embedding_dim %d, but table \"%s\" has %d", table->din_target,
           target->embedding_dim, table->name, table->embedding_dim);
    table->din_vector = k;
    for (const TrsTableConfig *before = tables->table; before < target; before++)
      table->din_vector += before->n_features * TrsTableVectors(before);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
