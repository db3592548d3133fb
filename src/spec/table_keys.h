/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Reading the keys of one table, for the files of spec/ that do so. A function that uses the macros
  has `options` and `table`, and begins with PetscFunctionBegin.
*/
#pragma once

#include "spec/table_config.h"

/* Read a table's key with a getter of TrsOptions: GET(Int, "num_embeddings", &value, &set). */
#define GET(type, key, ...) \
  do { \
    const char *full_name; \
    PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), key, &full_name)); \
    PetscCall(TrsOptionsGet##type(options, full_name, __VA_ARGS__)); \
  } while (0)

/* Raise OPTION naming a table's key. */
#define FAIL(key, ...) \
  do { \
    const char *full_name; \
    PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), key, &full_name)); \
    PetscCall(TrsOptionError(options, full_name, __VA_ARGS__)); \
  } while (0)

/*
  Was the key given for this table alone? -tables_<key> is for all tables, so it may also reach
  tables that have no use for the key. Not collective.
*/
PetscErrorCode TrsTableKeyIsOwn(TrsOptions options, const TrsTableConfig *table, const char *key,
                                PetscBool *own);
