/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The preflight checks a file in a child process before this process opens it. HDF5 1.10 crashes on
  some damaged metadata, mostly on strings of variable length. Then only the child crashes, and the
  run ends with an ordinary error. On other damaged files HDF5 never returns, so the child has time
  limits. Internal to io/, except TrsPreflightSkip().
*/
#pragma once

#include "core/error.h"

/*
  TrsPreflight - Run a check in a child process. The check must not use MPI; only its result counts.

  Not collective; one rank is enough. If no child can be made, nothing is checked. The child may
  compute for 5 s, plus a time in proportion to the file's size. While it only waits for a processor
  or the file system, it gets one more minute. A stop request (trs_stop_requested) ends the wait.

  The caller must hold TrsHDF5Lock(), so that no other thread is inside HDF5. The child has only one
  thread, so it would wait forever for a lock that another thread held.

  In:     path     of the file. Its size sets the time limit, and the message names it
          check    raises an error if it finds one
          context  the argument of check
  Errors: those of check, raised here; DATA if the child crashed or computed without end; MEMORY if
          something killed it; IO if it waited without end; STOPPED
*/
PetscErrorCode TrsPreflight(const char *path, PetscErrorCode (*check)(void *context), void *context);

/*
  With skip set, make no child and check nothing from now on. This is for files that are known to be
  intact. A child is a copy of this process, and the copy takes time in proportion to the process's
  memory. Not collective.
*/
void TrsPreflightSkip(PetscBool skip);
