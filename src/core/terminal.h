/* SPDX-License-Identifier: BSD-3-Clause */
/* This module finds out whether a person or a file receives standard output. */
#pragma once

#include "core/error.h"

/*
  TrsStdoutIsTerminal - Tell whether a person sees the output as it is printed.

  Not collective. mpirun gives its ranks a terminal of its own making, whatever happens to their
  output. So below a launcher, the launcher's output counts.
*/
PetscBool TrsStdoutIsTerminal(void);
