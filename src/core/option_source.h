/* SPDX-License-Identifier: BSD-3-Clause */
/* Where options come from: the command line and the option files, as one list in which later ones win. */
#pragma once

#include "core/error.h"

typedef struct {
  char *name;   /* "-batch_size", as spelt */
  char *value;  /* NULL: none */
  char *source; /* "run.opts:12", "command line" */
  char *folder; /* absolute: where its relative paths begin */
  int origin;   /* index of the file; the number of files for the command line */
} TrsGivenOption;

typedef struct {
  int n, capacity;
  TrsGivenOption *option; /* [n] files in the order given, then the command line */
  int n_files;
} TrsGivenOptions;

/*
  TrsGivenOptionsCollect - Read the command line and the option files it names.

  Collective on comm: rank 0 reads, all ranks get rank 0's command line and texts.

  Out:    given   free with TrsGivenOptionsFree()
  Errors: NO_INPUT for a file that is missing or not a regular one; OPTION for one that is larger than 16 MiB, no text, not in the
          form of an option file or YAML, or that names further option files, and for a word that belongs to no option
*/
PetscErrorCode TrsGivenOptionsCollect(MPI_Comm comm, int argc, char **argv, TrsGivenOptions *given);
PetscErrorCode TrsGivenOptionsFree(TrsGivenOptions *given);

/* Append a copy of an option. For the parsers. */
PetscErrorCode TrsGivenOptionsAdd(TrsGivenOptions *given, const TrsGivenOption *option);

/*
  Parse the text of one file and append its options; the text is changed. `file` holds origin and folder, its source is the file's name.
  Not collective.
*/
PetscErrorCode TrsOptionTextParse(char *text, const TrsGivenOption *file, TrsGivenOptions *given);
PetscErrorCode TrsOptionYamlParse(const char *text, const TrsGivenOption *file, TrsGivenOptions *given);
