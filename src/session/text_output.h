/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes texts that options send to a file or to standard output: plans, reports, topologies. */
#pragma once

#include "core/options/options.h"
#include "spec/text.h"

/*
  TrsTextOutput - Write a text to the file `path`. After an error, the file is unchanged. If
    the file already has a different text, -existing_outputs determines what happens to the file.

  "stdout" and "/dev/stdout" are standard output. Not collective. The function is a TrsPlanWriter
  for rank 0.

  In:     text  if NULL, only check that the file can be created and that
                -existing_outputs allows it
  Errors: CANT_CREATE, IO. The message has the option, the path and the reason. Errors of standard
          output are found later, by TrsStop()
*/
PetscErrorCode TrsTextOutput(TrsOptions options, const char *option, const char *path, const TrsText *text);
