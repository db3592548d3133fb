/* SPDX-License-Identifier: BSD-3-Clause */
/* Support for -log_view. PETSc itself reads this option, but writes its file only after the run. */
#pragma once

#include "core/options/options.h"

/*
  Get the file of -log_view [ascii][:FILE[:FORMAT]]. *path is static memory that the next call
  changes. It is NULL if there is no file or the file is standard output. Not collective. Errors:
  CANT_CREATE
*/
PetscErrorCode TrsLogViewPath(TrsOptions options, const char **path);
