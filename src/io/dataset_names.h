/* SPDX-License-Identifier: BSD-3-Clause */
/* Search for the files that names and patterns stand for. Internal to io/. */
#pragma once

#include "core/error.h"

/*
  TrsDatasetFindFiles - Find the files for the given names [n], in order: see TrsDatasetOpen().

  Collective on comm: rank 0 searches the folders and broadcasts the result.

  Out:    paths  [n_files] one block, free with PetscFree()
  Errors (agreed): NO_INPUT with a pattern that no file matches
*/
PetscErrorCode TrsDatasetFindFiles(MPI_Comm comm, int n, const char *const *given, int *n_files,
                                   char ***paths);
