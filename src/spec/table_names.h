/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks tables' names, which are JSON strings in plans and paths in HDF5 checkpoints. */
#pragma once

#include "core/options/options.h"

/*
  Find the first name that occurs twice; NULL if there is none. Sorts a copy, because 10,000 tables
  are usual. Not collective. Errors: MEMORY
*/
PetscErrorCode TrsNamesFindTwice(int n, const char *const *names, const char **twice);

/*
  Reject table names [n] that occur twice, also if they differ only in case, and names that a plan
  or checkpoint cannot hold. These are names that are not UTF-8; paths with parts that are empty or
  ".", because HDF5 skips them; and names at the place of another table's tensor, such as a/weight
  if there is a table a. Collective. Errors: OPTION (-tables)
*/
PetscErrorCode TrsTableNamesCheck(TrsOptions options, int n, const char *const *names);
