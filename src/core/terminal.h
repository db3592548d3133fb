/* SPDX-License-Identifier: BSD-3-Clause */
/* This module finds out who receives standard output, and whether anybody takes it now. */
#pragma once

#include "core/error.h"

/*
  TrsStdoutIsTerminal - Tell whether a person sees the output as it is printed.

  Not collective. mpirun gives its ranks a terminal of its own making, whatever happens to their
  output. So below a launcher, the launcher's output counts.
*/
PetscBool TrsStdoutIsTerminal(void);

/*
  TrsStdoutTakes - Tell whether a line can be written to standard output without a wait.

  Not collective, any thread. A pipe or a terminal is full when its reader pauses (a pager, Ctrl-S,
  tee on a slow disk): the next write then waits for the reader. A file always takes a line.

  In: wait_ms  how long to wait for a reader that is only slow
*/
PetscBool TrsStdoutTakes(int wait_ms);
