/* SPDX-License-Identifier: BSD-3-Clause */
/* Which names tables may have: a plan has them in JSON, a checkpoint as paths in an HDF5 file. */
#pragma once

#include "core/options/options.h"

/*
  The first name that occurs twice, NULL for none. Not collective. A copy is sorted, as 10,000
  tables are usual. Errors: MEMORY
*/
PetscErrorCode TrsNamesFindTwice(int n, const char *const *names, const char **twice);

/*
  Refuse names of tables [n] that occur twice, also where letters' case alone differs, and those
  that no plan or checkpoint could hold: bytes that are not UTF-8; paths with parts that are empty
  or ".", which HDF5 leaves out; a name at the place of another table's tensor, as a/weight beside
  a. Collective. Errors: OPTION (-tables)
*/
PetscErrorCode TrsTableNamesCheck(TrsOptions options, int n, const char *const *names);
