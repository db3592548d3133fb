/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Macros for files of spec/ that read a table's keys. A function that uses them must have the
  variables `options` and `table`, and must begin with PetscFunctionBegin.
*/
#pragma once

#include "spec/table_config.h"

/*
  Read a table's key with a getter of TrsOptions, for example GET(Int, "num_embeddings", &value,
  &set).
*/
#define GET(type, key, ...) \
  do { \
    const char *full_name; \
    PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), key, &full_name)); \
    PetscCall(TrsOptionsGet##type(options, full_name, __VA_ARGS__)); \
  } while (0)

/* Raise OPTION with the name of a table's key. */
#define FAIL(key, ...) \
  do { \
    const char *full_name; \
    PetscCall(TrsOptionsObjectName(options, "table", TrsTableOptionName(table), key, &full_name)); \
    PetscCall(TrsOptionError(options, full_name, __VA_ARGS__)); \
  } while (0)

/*
  Set *own to true if the key was given for this table by name. A key given as -tables_<key> is for
  all tables, even those that do not use it. Not collective.
*/
PetscErrorCode TrsTableKeyIsOwn(TrsOptions options, const TrsTableConfig *table, const char *key,
                                PetscBool *own);
