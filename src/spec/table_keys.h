/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Macros to read a table's keys in the files of spec/. A function that uses them must have `options`
  and `table`, and must begin with PetscFunctionBegin.
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
  Set *own to true if the key was given for this table in particular. -tables_<key> applies to all
  tables, including tables that do not use the key. Not collective.
*/
PetscErrorCode TrsTableKeyIsOwn(TrsOptions options, const TrsTableConfig *table, const char *key,
                                PetscBool *own);
