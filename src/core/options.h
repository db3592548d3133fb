/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Options: our own strict reader on top of PETSc's options database.

  PETSc's readers let 3000000000 become -1294967296, take NaN, read "-n" without a value as unset and ignore unknown
  names. So each module declares its options in a const table (TrsOptionSpec): name, type, default, range, unit, help. The tables
  give -help, defaults, checks, the closest known name for a typo, and the configuration that is stored in the results.

  Life: TrsOptionsCreate() reads the command line and the option files (rank 0 reads, all ranks get the same text) and checks what can
  be checked without knowing the tables; modules read with TrsOptionsGet*() in their SetFromOptions; TrsOptionsCheckObjects() checks
  -table_<name>_<key> once the names are known.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef enum {
  TRS_OPTION_BOOL,  /* true, false, 1, 0, yes, no; a bare flag is true */
  TRS_OPTION_INT,   /* int64, suffixes K M G T (powers of 1000) allowed for counts */
  TRS_OPTION_BYTES, /* int64 bytes: suffixes KB MB GB TB (1000) and KiB MiB GiB TiB (1024) */
  TRS_OPTION_REAL,  /* finite double */
  TRS_OPTION_STRING,
  TRS_OPTION_FILE,    /* path; relative to the option file that gives it */
  TRS_OPTION_FILES,   /* comma-separated list of paths */
  TRS_OPTION_ENUM,    /* one of choices */
  TRS_OPTION_ENUMS,   /* list, each one of choices */
  TRS_OPTION_STRINGS, /* comma-separated list */
  TRS_OPTION_INTS,
  TRS_OPTION_BYTES_LIST,
  TRS_OPTION_REALS
} TrsOptionType;

typedef struct {
  const char *name; /* "-batch_size"; in a per-object group the key alone: "embedding_dim" */
  TrsOptionType type;
  const char *
      fallback; /* the default as text, parsed like a given value; NULL: none (stays unset); for -help if fallback_text is NULL */
  const char *range;   /* numbers, each entry of a list: "[1,]" "(0,1)" "[0,1]"; NULL: any */
  const char *choices; /* enums: "a,b,c"; FILE: words that are no path ("stdout") */
  const char *unit;    /* "samples", "bytes/ms"; NULL */
  const char *help;    /* one line; what a default of NULL means, too */
} TrsOptionSpec;

typedef struct {
  const char *title;  /* heading in -help */
  const char *object; /* NULL: plain options. "table": keys, given as -tables_<key> or -table_<name>_<key> */
  const TrsOptionSpec *spec; /* [n] */
  int n;
} TrsOptionGroup;

#define TRS_OPTION_GROUP(title, specs) \
  { \
    title, NULL, specs, (int)(sizeof(specs) / sizeof((specs)[0])) \
  }
#define TRS_OPTION_GROUP_OF(title, object, specs) \
  { \
    title, object, specs, (int)(sizeof(specs) / sizeof((specs)[0])) \
  }

typedef struct TrsOptionsImpl *TrsOptions;

/*
  TrsOptionsCreate - Read command line and option files into PETSc's database and check them.

  Collective on comm: rank 0 reads the files and broadcasts their text. Wants PetscInitialize() done without arguments.

  In:     comm         all ranks
          argc, argv   of main; strings are borrowed
          groups       [n_groups] every option that any task reads; borrowed
  Out:    options      free with TrsOptionsDestroy()
  Errors: OPTION for an unknown name (with the closest known one), a missing or malformed value, a value out of range, NaN or Inf,
          an option given twice with different values in one file; NO_INPUT for an option file that can't be read
*/
PetscErrorCode TrsOptionsCreate(MPI_Comm comm, int argc, char **argv, const TrsOptionGroup *const *groups,
                                int n_groups, TrsOptions *options);
PetscErrorCode TrsOptionsDestroy(TrsOptions *options);

/* Was -help given, and with "all"? Not collective. */
PetscErrorCode TrsOptionsHelpWanted(TrsOptions options, PetscBool *help, PetscBool *all);

/* Print every option, grouped, with default, unit and range. Prints on rank 0 of comm. */
PetscErrorCode TrsOptionsHelp(TrsOptions options, MPI_Comm comm);

/*
  Getters. Not collective; all ranks hold the same values. `name` must be in a table (else INTERNAL). `set` (may be NULL) tells whether
  the user gave it; when not, the table's default is parsed; with no default either, *value is left as the caller set it.
  Strings are borrowed until TrsOptionsDestroy(). Lists: *n entries in an array owned by options.
*/
PetscErrorCode TrsOptionsGetBool(TrsOptions options, const char *name, PetscBool *value, PetscBool *set);
PetscErrorCode TrsOptionsGetInt(TrsOptions options, const char *name, int64_t *value,
                                PetscBool *set); /* also BYTES */
PetscErrorCode TrsOptionsGetReal(TrsOptions options, const char *name, double *value, PetscBool *set);
PetscErrorCode TrsOptionsGetString(TrsOptions options, const char *name, const char **value,
                                   PetscBool *set); /* also FILE (absolute path) */
PetscErrorCode TrsOptionsGetEnum(TrsOptions options, const char *name, int *index,
                                 PetscBool *set); /* index into choices */
PetscErrorCode TrsOptionsGetStrings(TrsOptions options, const char *name, int *n, const char *const **value,
                                    PetscBool *set);
PetscErrorCode TrsOptionsGetEnums(TrsOptions options, const char *name, int *n, const int **index,
                                  PetscBool *set);
PetscErrorCode TrsOptionsGetInts(TrsOptions options, const char *name, int *n, const int64_t **value,
                                 PetscBool *set);
PetscErrorCode TrsOptionsGetReals(TrsOptions options, const char *name, int *n, const double **value,
                                  PetscBool *set);

/*
  Full name of a per-object key as the user gave it: "-table_user_embedding_dim" when given, else "-tables_embedding_dim" when given,
  else the per-object spelling (so that the getters find the default). Any getter above takes the result. Borrowed.
*/
PetscErrorCode TrsOptionsObjectName(TrsOptions options, const char *object, const char *instance,
                                    const char *key, const char **name);

/*
  Check every given -<object>_<name>_<key> against the known names. Not collective (same result everywhere).
  Errors: OPTION naming the option and the closest known name or key
*/
PetscErrorCode TrsOptionsCheckObjects(TrsOptions options, const char *object, int n,
                                      const char *const *names);

/* Where an option was given, for messages: "run.opts:12" or "command line"; "default" when it was not given. Borrowed. */
PetscErrorCode TrsOptionsSource(TrsOptions options, const char *name, const char **source);

/* The whole configuration as option-file text: given options in the order given, then defaults as comments. Free with PetscFree(). */
PetscErrorCode TrsOptionsText(TrsOptions options, char **text);

/* A mistake in a value that only a module can see: raise OPTION with the option's name and source in front of the message. */
#define TrsOptionError(options, name, ...) \
  TrsOptionsRaise(options, name, PETSC_FUNCTION_NAME, __FILE__, __LINE__, __VA_ARGS__)
PetscErrorCode TrsOptionsRaise(TrsOptions options, const char *name, const char *function, const char *file,
                               int line, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(6, 7);
