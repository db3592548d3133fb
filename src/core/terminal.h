/* SPDX-License-Identifier: BSD-3-Clause */
/* Find out what receives standard output, and whether the receiver is ready now. */
#pragma once

#include "core/error.h"

/*
  TrsStdoutIsTerminal - Find out whether a person sees the output as it is printed.

  Not collective. mpirun gives its ranks a pseudo-terminal even if their output goes to a file.
  Therefore, below a launcher, the launcher's output is examined.
*/
PetscBool TrsStdoutIsTerminal(void);

/*
  TrsStdoutTakes - Find out whether a line can be written to standard output without waiting.

  Not collective, any thread. A pipe or a terminal is full when its reader pauses (a pager, Ctrl-S,
  tee on a slow disk): the next write then waits for the reader. A file is always ready.

  In: wait_ms  how long to wait for a reader that is only slow
*/
PetscBool TrsStdoutTakes(int wait_ms);
