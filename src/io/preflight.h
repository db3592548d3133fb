/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Preflight: look at a file in a child process first. HDF5 1.10 crashes on some damaged metadata (strings of variable length above all); then
  the child dies, and the run ends with an ordinary error. On other such files HDF5 never comes back: the child has limits. Internal to io/.
*/
#pragma once

#include "core/error.h"

/*
  TrsPreflight - Run a check in a child process: no MPI in there, and no effect but its result.

  Not collective; one rank is enough. Where no child can be made, nothing is checked. The child has 5 s and what the file's size asks for; while it
  waits (for the processor or the file system) it gets a minute more. A stop request (trs_stop_requested) ends the wait.

  In:     path     of the file, for its size and the message
          check    raises what it finds
          context  its argument
  Errors: the check's, raised here; DATA when the child crashed or computed without end; IO when it waited without end; STOPPED
*/
PetscErrorCode TrsPreflight(const char *path, PetscErrorCode (*check)(void *context), void *context);
