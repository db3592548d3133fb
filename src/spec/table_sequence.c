/* SPDX-License-Identifier: BSD-3-Clause */
#include "spec/table_sequence.h"

#include "spec/table_keys.h"

#include <inttypes.h>
#include <string.h>

static const char *const words[] = {TRS_SEQUENCE_POOLINGS(TRS_WORD_TEXT)};

static const struct {
  const char *key;
  TrsSequencePoolingKind taken_by;
} keys[] = {
#define KEY(word, type, fallback, range, choices, unit, KIND, help) {#word, TRS_SEQUENCE_POOLING_##KIND},
    TRS_SEQUENCE_KEYS(KEY)};

/* Refuse a key that was given for this table alone, and that the table does not take. */
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

PetscErrorCode TrsTableSequenceRead(TrsOptions options, TrsTableConfig *table)
{
  int kind = 0;

  PetscFunctionBegin;
  GET(Enum, "sequence_pooling", &kind, NULL);
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
  PetscFunctionReturn(PETSC_SUCCESS);
}
