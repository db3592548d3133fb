/* SPDX-License-Identifier: BSD-3-Clause */
/* Support for PETSc's -log_view. PETSc itself reads this option, but writes only after the run. */
#pragma once

#include "core/options/options.h"

/*
  Return the file of -log_view [ascii][:FILE[:FORMAT]] in static memory that the next call changes.
  NULL: no file, or standard output. Not collective. Errors: CANT_CREATE
*/
PetscErrorCode TrsLogViewPath(TrsOptions options, const char **path);
