/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Reading options from the command line and from option files. They become one list, in which later
  entries override earlier ones.
*/
#pragma once

#include "core/error.h"

typedef struct {
  char *name;   /* "-batch_size", spelt as the user spelt it */
  char *value;  /* NULL if the option has no value */
  char *source; /* "run.opts:12" or "command line" */
  char *folder; /* absolute path to which relative paths in the value refer */
  int origin;   /* index of the option file, or the number of files for the command line */
} TrsGivenOption;

typedef struct {
  int n, capacity;
  /* [n] the options of the files in the order given, then of the command line */
  TrsGivenOption *option;
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
  Parse the text of a file, and append its options. `file` gives their origin and folder; its source
  is the file's name. The text is modified. Not collective.
*/
PetscErrorCode TrsOptionTextParse(char *text, const TrsGivenOption *file, TrsGivenOptions *given);
PetscErrorCode TrsOptionYamlParse(const char *text, const TrsGivenOption *file, TrsGivenOptions *given);
