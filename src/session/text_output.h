/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes texts that options send to a file or to standard output: plans, reports, topologies. */
#pragma once

#include "core/options/options.h"
#include "spec/text.h"

/*
  TrsTextOutput - Write the text as the whole file `path`, or leave the file unchanged. If the path
    has another text, it is treated as -existing_outputs requests.

  "stdout" and "/dev/stdout" are standard output. Not collective. The function is a TrsPlanWriter
  for rank 0.

  In:     text  NULL: only check that the path may be written and can be written
  Errors: CANT_CREATE, IO with the option, the path and the reason. TrsStop() finds the errors of
          standard output
*/
PetscErrorCode TrsTextOutput(TrsOptions options, const char *option, const char *path, const TrsText *text);
