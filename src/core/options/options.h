/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A strict reader of options on top of PETSc's options database.

  PETSc's readers turn 3000000000 into -1294967296, accept NaN, treat "-n" without a value as unset
  and ignore unknown names. Therefore each module declares its options in a const table
  (TrsOptionSpec) with name, type, default, range, unit and help. The tables provide -help, the
  defaults, the checks, the closest known name for a typo, and the configuration that is stored in
  the results.

  TrsOptionsCreate() reads the command line and the option files: rank 0 reads, and all ranks get
  the same text. It checks everything that does not need the tables' names. Modules then read their
  options with TrsOptionsGet*() in their SetFromOptions. TrsOptionsCheckObjects() checks
  -table_<name>_<key> once the names are known.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef enum {
  TRS_OPTION_BOOL,  /* true, false, 1, 0, yes, no; a flag without a value is true */
  TRS_OPTION_INT,   /* int64; counts may have a suffix K M G T (powers of 1000) */
  TRS_OPTION_BYTES, /* int64 bytes with suffix KB MB GB TB (1000) or KiB MiB GiB TiB (1024) */
  TRS_OPTION_REAL,  /* finite double */
  TRS_OPTION_STRING,
  TRS_OPTION_FILE,    /* path, relative to the option file's folder */
  TRS_OPTION_FILES,   /* comma-separated list of paths */
  TRS_OPTION_ENUM,    /* one of choices */
  TRS_OPTION_ENUMS,   /* comma-separated list, each entry one of choices */
  TRS_OPTION_STRINGS, /* comma-separated list */
  TRS_OPTION_INTS,
  TRS_OPTION_BYTES_LIST,
  TRS_OPTION_REALS,
  TRS_OPTION_BANDWIDTH /* bytes/ms as a finite double: a number, or 3.35TB/s, 51GiB/s, 400Gbit/s */
} TrsOptionType;

typedef struct {
  const char *name; /* "-batch_size"; in a per-object group only the key, "embedding_dim" */
  TrsOptionType type;
  /* The default as text, parsed like a given value and shown by -help; NULL if the option stays
     unset. */
  const char *fallback;
  /* Range of a number or of each entry of a list: "[1,]" "(0,1)" "[0,1]"; NULL for any value. */
  const char *range;
  const char *choices; /* ENUM: "a,b,c"; FILE: words that are not a path ("stdout") */
  const char *unit;    /* "samples", "bytes/ms", or NULL */
  const char *help;    /* one line; must also explain a default of NULL */
} TrsOptionSpec;

typedef struct {
  const char *title; /* heading in -help */
  /* NULL for plain options. For the object "table", the user gives keys as -tables_<key> or
     -table_<name>_<key>. */
  const char *object;
  const TrsOptionSpec *spec; /* [n] */
  int n;
  /* Names "a,b,c" of the options that define the model, which a checkpoint stores
     (TrsOptionsTakeModel). A run cannot change `fixed` options, because tensors and rows depend on
     them; it can change `kept` options. NULL for none. */
  const char *fixed, *kept;
} TrsOptionGroup;

#define TRS_OPTION_GROUP(title, specs)            TRS_OPTION_GROUP_OF_MODEL(title, NULL, specs, NULL, NULL)
#define TRS_OPTION_GROUP_OF(title, object, specs) TRS_OPTION_GROUP_OF_MODEL(title, object, specs, NULL, NULL)
#define TRS_OPTION_GROUP_OF_MODEL(title, object, specs, fixed, kept) \
  { \
    title, object, specs, (int)(sizeof(specs) / sizeof((specs)[0])), fixed, kept \
  }

typedef struct TrsOptionsImpl *TrsOptions;

/*
  TrsOptionsCreate - Read the command line and option files into PETSc's database and check them.

  Collective on comm: rank 0 reads the files and broadcasts their text. PetscInitialize() must have
  run without arguments.

  In:     comm         all ranks
          argc, argv   main's arguments; the strings are borrowed
          groups       [n_groups] every option that any task reads; borrowed
  Out:    options      free with TrsOptionsDestroy()
  Errors: OPTION for an unknown name (with the closest known name), a missing or malformed value, a
          value out of range, NaN or Inf, or an option given twice with different values in one
          file; NO_INPUT for an option file that cannot be read
*/
PetscErrorCode TrsOptionsCreate(MPI_Comm comm, int argc, char **argv, const TrsOptionGroup *const *groups,
                                int n_groups, TrsOptions *options);
PetscErrorCode TrsOptionsDestroy(TrsOptions *options);

/* Find out whether -help was given, and whether as "-help all". Not collective. */
PetscErrorCode TrsOptionsHelpWanted(TrsOptions options, PetscBool *help, PetscBool *all);

/*
  TrsOptionsHelp - Print every option in its group, with default, unit and range, on rank 0 of comm.

  Not collective (same result everywhere). With -help WORD it prints the groups whose title contains
  the word, and the options whose name, values or help text contain it; a group's whole title prints
  only that group.

  Errors: OPTION if nothing contains the word
*/
PetscErrorCode TrsOptionsHelp(TrsOptions options, MPI_Comm comm);

/*
  TrsOptionsTellUnread - Warn of options on the command line that no getter has read since
    TrsOptionsForgetReads(). Option files are exempt, because a file may serve many tasks.

  Not collective; rank 0 prints, on stderr.

  In: by  the part of the program that ran, such as "-task plan"
*/
PetscErrorCode TrsOptionsTellUnread(TrsOptions options, const char *by);
void TrsOptionsForgetReads(TrsOptions options);

/*
  Getters. Not collective: all ranks hold the same values. `name` must be in a table (else
  INTERNAL). *set is true if the user gave the option; `set` may be NULL. Otherwise the table's
  default is parsed. Without a default *value is unchanged. Strings are borrowed until
  TrsOptionsDestroy(). Lists give *n entries in an array that `options` owns.
*/
PetscErrorCode TrsOptionsGetBool(TrsOptions options, const char *name, PetscBool *value, PetscBool *set);
PetscErrorCode TrsOptionsGetInt(TrsOptions options, const char *name, int64_t *value,
                                PetscBool *set); /* also for BYTES */
PetscErrorCode TrsOptionsGetReal(TrsOptions options, const char *name, double *value,
                                 PetscBool *set); /* also BANDWIDTH, in bytes/ms */
PetscErrorCode TrsOptionsGetString(TrsOptions options, const char *name, const char **value,
                                   PetscBool *set); /* also for FILE, as an absolute path */
PetscErrorCode TrsOptionsGetEnum(TrsOptions options, const char *name, int *index,
                                 PetscBool *set); /* *value is an index into choices */
PetscErrorCode TrsOptionsGetStrings(TrsOptions options, const char *name, int *n, const char *const **value,
                                    PetscBool *set);
PetscErrorCode TrsOptionsGetEnums(TrsOptions options, const char *name, int *n, const int **index,
                                  PetscBool *set);
PetscErrorCode TrsOptionsGetInts(TrsOptions options, const char *name, int *n, const int64_t **value,
                                 PetscBool *set);
PetscErrorCode TrsOptionsGetReals(TrsOptions options, const char *name, int *n, const double **value,
                                  PetscBool *set);

/*
  The full name of a per-object key: "-table_user_embedding_dim" if given, else
  "-tables_embedding_dim" if given, else the per-object name, so that the getters find the default.
  All getters above accept the result. The string is borrowed.
*/
PetscErrorCode TrsOptionsObjectName(TrsOptions options, const char *object, const char *instance,
                                    const char *key, const char **name);

/*
  Check every given -<object>_<name>_<key> against the known names. Not collective: the result is
  the same on all ranks. Errors: OPTION with the option and the closest known name or key.
*/
PetscErrorCode TrsOptionsCheckObjects(TrsOptions options, const char *object, int n,
                                      const char *const *names);

/*
  The place where an option was given, for messages: "run.opts:12" or "command line", or "default"
  if the option was not given. The string is borrowed.
*/
PetscErrorCode TrsOptionsSource(TrsOptions options, const char *name, const char **source);

/*
  TrsOptionsTakeModel - Take over the options of a checkpoint's model. The user's options override
    them.

  Not collective: all ranks give the same text. Call this before any option of a model is read.

  In:     text  text of TrsOptionsModelText(), modified here. NULL if the file has none: messages
                about a model's options then mention it
          path  path of the checkpoint, for messages
  Errors: OPTION for a given option that contradicts a fixed one, naming both; DATA for a text that
          does not consist of model options. From then on TrsOptionError() raises DATA for an option
          whose value comes from the checkpoint
*/
PetscErrorCode TrsOptionsTakeModel(TrsOptions options, const char *path, char *text);

/* True if the user gave the option by exactly this name. Not collective. */
PetscBool TrsOptionsIsGiven(TrsOptions options, const char *name);

/*
  TrsOptionsTry, TrsOptionsEndTry - Set an option to another value until the end of the trial, to
    find out the effect.

  Not collective. A trial may set many options, one call each. Pointers that getters lent before for
  these options stay valid. Pointers lent during the trial are invalid after it.

  In:  value  NULL: as if the user had not given the option
*/
PetscErrorCode TrsOptionsTry(TrsOptions options, const char *name, const char *value);
PetscErrorCode TrsOptionsEndTry(TrsOptions options);

/* The checkpoint from whose model this option's effective value comes, or NULL. Borrowed. */
const char *TrsOptionsModelOf(TrsOptions options, const char *name);

/*
  The checkpoint model's value, as text, for a key of an object, even if the user overrides it. NULL
  without a checkpoint. Borrowed. Not collective.
*/
const char *TrsOptionsModelValue(TrsOptions options, const char *object, const char *instance,
                                 const char *key);

/*
  Store the value that the run has determined for an option that may not have been given, for
  TrsOptionsModelText(). Getters do not return it. Not collective.
*/
PetscErrorCode TrsOptionsSettle(TrsOptions options, const char *name, const char *value);

/*
  TrsOptionsModelText - Write the options that define the model, whether given, settled or default,
    as the text of an option file.

  Not collective. A checkpoint keeps it.

  In:     objects  [n] the model's objects that have their own options: tables and tasks
  Out:    text     free with PetscFree()
*/
typedef struct {
  const char *object; /* "table" */
  int n;
  const char *const *names; /* [n] */
} TrsOptionObjects;
PetscErrorCode TrsOptionsModelText(TrsOptions options, int n, const TrsOptionObjects *objects, char **text);

/*
  The whole configuration as the text of an option file: the effective options of the checkpoint's
  model, the user's options in their order, then the defaults as comments. Free the text with
  PetscFree().
*/
PetscErrorCode TrsOptionsText(TrsOptions options, char **text);

/*
  Report a mistake that only a module can detect in a value: raise OPTION with the option's name and
  source in front of the message.
*/
#define TrsOptionError(options, name, ...) \
  TrsOptionsRaise(options, name, PETSC_FUNCTION_NAME, __FILE__, __LINE__, __VA_ARGS__)
PetscErrorCode TrsOptionsRaise(TrsOptions options, const char *name, const char *function, const char *file,
                               int line, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(6, 7);
