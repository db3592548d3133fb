/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts that options send to a file or to standard output: plans, reports, topologies. */
#pragma once

#include "spec/text.h"

/*
  TrsTextOutput - The text becomes the file `path` as a whole, or the file stays as it was. "stdout" and "/dev/stdout" are standard output.

  Not collective: a TrsPlanWriter of rank 0. In: text  NULL: nothing is written, only the path is tried
  Errors: CANT_CREATE, IO naming the option, the path and the reason; those of standard output are found by TrsStop()
*/
PetscErrorCode TrsTextOutput(const char *option, const char *path, const TrsText *text);
