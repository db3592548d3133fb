/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the names of tables. They become JSON strings in plans and paths in HDF5 checkpoints. */
#pragma once

#include "core/options/options.h"

/*
  Find the first name that occurs twice. Returns NULL if there is none. The function sorts a copy of
  the list, because 10,000 tables are usual. Not collective. Errors: MEMORY
*/
PetscErrorCode TrsNamesFindTwice(int n, const char *const *names, const char **twice);

/*
  Reject table names [n] that occur twice or differ only in case, and names that a plan or
  checkpoint cannot hold. A name must be UTF-8. As a path it must have no part that is empty or ".",
  because HDF5 skips such parts. It must not be the path of another table's tensor, such as a/weight
  if there is a table a. Collective. Errors: OPTION (-tables)
*/
PetscErrorCode TrsTableNamesCheck(TrsOptions options, int n, const char *const *names);
