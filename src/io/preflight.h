/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Preflight: look at a file in a child process first. HDF5 1.10 crashes on some damaged metadata (strings of variable length above all); then
  the child dies, and the run ends with an ordinary error. Internal to io/.
*/
#pragma once

#include "core/error.h"

/*
  TrsPreflight - Run a check in a child process: no MPI in there, and no effect but its result.

  Not collective; one rank is enough. Where no child can be made, nothing is checked.

  In:     path     of the file, for the message
          check    raises what it finds
          context  its argument
  Errors: the check's, raised here; DATA when the child crashed or took more than a minute of processor time
*/
PetscErrorCode TrsPreflight(const char *path, PetscErrorCode (*check)(void *context), void *context);
