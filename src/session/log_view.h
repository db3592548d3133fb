/* SPDX-License-Identifier: BSD-3-Clause */
/* PETSc's -log_view, which PETSc itself reads and writes only when the run is over. */
#pragma once

#include "core/options/options.h"

/*
  The file of -log_view [ascii][:FILE[:FORMAT]], in static memory that the next call changes; NULL:
  none, or standard output. Not collective. Errors: CANT_CREATE
*/
PetscErrorCode TrsLogViewPath(TrsOptions options, const char **path);
