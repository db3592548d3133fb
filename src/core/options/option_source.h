/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Options come from the command line and the option files.
  They form one list in which later entries win.
*/
#pragma once

#include "core/error.h"

typedef struct {
  char *name;   /* "-batch_size", as the user spelt it */
  char *value;  /* NULL if the option has no value */
  char *source; /* "run.opts:12", "command line" */
  char *folder; /* absolute; base of relative paths in the value */
  int origin;   /* index of the option file, or the number of files for the command line */
} TrsGivenOption;

typedef struct {
  int n, capacity;
  TrsGivenOption *option; /* [n] the files in the order given, then the command line */
  int n_files;
} TrsGivenOptions;

/*
  TrsGivenOptionsCollect - Read the command line and the option files that it names.

  Collective on comm: rank 0 reads, and all ranks get rank 0's command line and texts.

  Out:    given   free with TrsGivenOptionsFree()
  Errors: NO_INPUT for a file that is missing or not a regular file; OPTION for a file that is
          larger than 16 MiB, is not text, does not have the form of an option file or YAML, or
          names further option files; OPTION for a word that belongs to no option
*/
PetscErrorCode TrsGivenOptionsCollect(MPI_Comm comm, int argc, char **argv, TrsGivenOptions *given);
PetscErrorCode TrsGivenOptionsFree(TrsGivenOptions *given);

/* Append a copy of an option. The parsers call this function. */
PetscErrorCode TrsGivenOptionsAdd(TrsGivenOptions *given, const TrsGivenOption *option);

/*
  Parse the text of one file and append its options. `file` gives origin and folder, and its source
  is the file's name. TrsOptionTextParse() modifies the text. Not collective.
*/
PetscErrorCode TrsOptionTextParse(char *text, const TrsGivenOption *file, TrsGivenOptions *given);
PetscErrorCode TrsOptionYamlParse(const char *text, const TrsGivenOption *file, TrsGivenOptions *given);
