/* SPDX-License-Identifier: BSD-3-Clause */
/* Find the files for names and patterns. Internal to io/. */
#pragma once

#include "core/error.h"

/*
  TrsDatasetFindFiles - Find the files for the given names [n], in the order that TrsDatasetOpen()
  describes.

  Collective on comm: rank 0 searches the folders and broadcasts the result.

  Out:    paths  [n_files] one block, free with PetscFree()
  Errors (agreed): NO_INPUT with the pattern if no file matches it
*/
PetscErrorCode TrsDatasetFindFiles(MPI_Comm comm, int n, const char *const *given, int *n_files,
                                   char ***paths);
