/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The preflight looks at a file in a child process first. HDF5 1.10 crashes on some damaged metadata
  (above all on strings of variable length). Then the child dies, and the run ends with an ordinary
  error. On other damaged files HDF5 never returns, so the child has time limits. Internal to io/,
  but for TrsPreflightSkip().
*/
#pragma once

#include "core/error.h"

/*
  TrsPreflight - Run a check in a child process, without MPI and without any effect but its result.

  Not collective; one rank is enough. If no child can be made, nothing is checked. The child has 5 s
  plus time in proportion to the file's size. While it waits (for the processor or the file system)
  it gets one more minute. A stop request (trs_stop_requested) ends the wait.

  The caller holds TrsHDF5Lock(), so that no other thread is inside HDF5. The child has none of the
  other threads, and would wait forever for a lock of theirs.

  In:     path     of the file, for its size and the message
          check    raises an error if it finds one
          context  the argument of check
  Errors: those of check, raised here; DATA if the child crashed or computed without end; MEMORY if
          something killed it; IO if it waited without end; STOPPED
*/
PetscErrorCode TrsPreflight(const char *path, PetscErrorCode (*check)(void *context), void *context);

/*
  Whether to make no child, and to check nothing, from now on: for files that are known to be whole.
  A child is a copy of this process, which takes the longer the more memory that has. Not
  collective.
*/
void TrsPreflightSkip(PetscBool skip);
