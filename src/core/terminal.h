/* SPDX-License-Identifier: BSD-3-Clause */
/* Find out what receives standard output, and whether the receiver can accept output now. */
#pragma once

#include "core/error.h"

/*
  TrsStdoutIsTerminal - Find out whether a person sees the output while it is printed.

  Not collective. mpirun gives its ranks a pseudo-terminal even if their output goes to a file. If a
  launcher has started this process, the function therefore examines the launcher's output.
*/
PetscBool TrsStdoutIsTerminal(void);

/*
  TrsStdoutTakes - Find out whether a line can be written to standard output without waiting.

  Not collective, any thread. If the reader of a pipe or a terminal pauses (a pager, Ctrl-S, tee on
  a slow disk), the pipe fills up, and the next write waits for the reader. A file is always ready.

  In: wait_ms  milliseconds to wait, because a reader may only be slow
*/
PetscBool TrsStdoutTakes(int wait_ms);
