/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A strict reader of options, on top of PETSc's options database.

  PETSc's readers turn 3000000000 into -1294967296, accept NaN, treat "-n" without a value as not
  given, and ignore unknown names. Therefore each module declares its options in a const table
  (TrsOptionSpec) with name, type, default, range, unit and help. From these tables come -help, the
  defaults, the checks, the closest known name for a misspelt option, and the configuration in the
  results.

  TrsOptionsCreate() reads the command line and the option files: rank 0 reads, and all ranks get
  the same text. It checks everything that does not need the tables' names. Modules then read their
  options with TrsOptionsGet*() in their SetFromOptions. TrsOptionsCheckObjects() checks
  -table_<name>_<key> once the names are known.
*/
#pragma once

#include "core/error.h"

#include <stdint.h>

typedef enum {
  TRS_OPTION_BOOL, /* true, false, 1, 0, yes or no; a name without a value means true */
  TRS_OPTION_INT,  /* int64; may have a suffix K, M, G or T (powers of 1000) */
  /* int64 bytes; may have a suffix KB, MB, GB, TB (1000) or KiB, MiB, GiB, TiB (1024) */
  TRS_OPTION_BYTES,
  TRS_OPTION_REAL, /* finite double */
  TRS_OPTION_STRING,
  TRS_OPTION_FILE,    /* path; a relative path refers to the option file's folder */
  TRS_OPTION_FILES,   /* comma-separated list of paths */
  TRS_OPTION_ENUM,    /* one of the choices */
  TRS_OPTION_ENUMS,   /* comma-separated list, each entry one of the choices */
  TRS_OPTION_STRINGS, /* comma-separated list */
  TRS_OPTION_INTS,
  TRS_OPTION_BYTES_LIST,
  TRS_OPTION_REALS,
  TRS_OPTION_BANDWIDTH /* finite double in bytes/ms: a number, or 3.35TB/s, 51GiB/s, 400Gbit/s */
} TrsOptionType;

typedef struct {
  /* "-batch_size"; in a group of per-object options only the key, "embedding_dim" */
  const char *name;
  TrsOptionType type;
  /* The default as text, which is parsed like a given value and shown by -help. NULL if the
     option has no default. */
  const char *fallback;
  /* Range of a number, or of each entry of a list: "[1,]" "(0,1)" "[0,1]". NULL if any value is
     allowed. */
  const char *range;
  const char *choices; /* ENUM: "a,b,c"; FILE: words that are not paths ("stdout") */
  const char *unit;    /* "samples", "bytes/ms"; NULL if there is none */
  const char *help;    /* one line; must also say what happens if there is no default */
} TrsOptionSpec;

typedef struct {
  const char *title; /* heading in -help */
  /* NULL for plain options. If it is "table", a user gives an option as -tables_<key> for all
     tables, or as -table_<name>_<key> for one table. */
  const char *object;
  const TrsOptionSpec *spec; /* [n] */
  int n;
  /* Names "a,b,c" of the options that define the model, which a checkpoint stores
     (TrsOptionsTakeModel). A later run cannot change `fixed` options, because tensors and rows
     depend on them; it can change `kept` options. NULL if there are none. */
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
          groups       [n_groups] all options that any task reads; borrowed
  Out:    options      free with TrsOptionsDestroy()
  Errors: OPTION for an unknown name (with the closest known name), a missing or malformed value, a
          value out of range, NaN or Inf, or an option given twice with different values in one
          file; NO_INPUT for an option file that cannot be read
*/
PetscErrorCode TrsOptionsCreate(MPI_Comm comm, int argc, char **argv, const TrsOptionGroup *const *groups,
                                int n_groups, TrsOptions *options);
PetscErrorCode TrsOptionsDestroy(TrsOptions *options);

/* Return whether -help was given, and whether it was given as "-help all". Not collective. */
PetscErrorCode TrsOptionsHelpWanted(TrsOptions options, PetscBool *help, PetscBool *all);

/*
  TrsOptionsHelp - Print all options by group, with default, unit and range, on rank 0 of comm.

  Not collective, but the result is the same on all ranks. -help WORD prints only groups whose title
  contains the word, and options whose name, values or help text contain the word. If the word is
  the whole title of a group, only this group is printed. `about` has the first lines of the whole
  help: the program's name and how it is started.

  Errors: OPTION if nothing contains the word
*/
PetscErrorCode TrsOptionsHelp(TrsOptions options, MPI_Comm comm, const char *about);

/*
  TrsOptionsTellUnread - Print a warning for options of the command line that no getter has read
    since TrsOptionsForgetReads(). Options of option files are not reported, because a file may
    serve many tasks.

  Not collective; rank 0 prints, on stderr.

  In: by  the part of the program that ran, such as "-task plan"
*/
PetscErrorCode TrsOptionsTellUnread(TrsOptions options, const char *by);
void TrsOptionsForgetReads(TrsOptions options);

/*
  Return the value of an option. Not collective, because all ranks have the same values. `name` must
  be in a table; if not, the error is INTERNAL. *set becomes true if the user gave the option; `set`
  may be NULL. If the option was not given, *value becomes its default; if there is no default,
  *value is unchanged. Strings are borrowed until TrsOptionsDestroy(). For lists, *n becomes the
  number of entries in an array that `options` owns.
*/
PetscErrorCode TrsOptionsGetBool(TrsOptions options, const char *name, PetscBool *value, PetscBool *set);
PetscErrorCode TrsOptionsGetInt(TrsOptions options, const char *name, int64_t *value,
                                PetscBool *set); /* also for BYTES */
PetscErrorCode TrsOptionsGetReal(TrsOptions options, const char *name, double *value,
                                 PetscBool *set); /* also for BANDWIDTH, in bytes/ms */
PetscErrorCode TrsOptionsGetString(TrsOptions options, const char *name, const char **value,
                                   PetscBool *set); /* also for FILE, as an absolute path */
PetscErrorCode TrsOptionsGetEnum(TrsOptions options, const char *name, int *index,
                                 PetscBool *set); /* *value becomes an index of choices */
PetscErrorCode TrsOptionsGetStrings(TrsOptions options, const char *name, int *n, const char *const **value,
                                    PetscBool *set);
PetscErrorCode TrsOptionsGetEnums(TrsOptions options, const char *name, int *n, const int **index,
                                  PetscBool *set);
PetscErrorCode TrsOptionsGetInts(TrsOptions options, const char *name, int *n, const int64_t **value,
                                 PetscBool *set);
PetscErrorCode TrsOptionsGetReals(TrsOptions options, const char *name, int *n, const double **value,
                                  PetscBool *set);

/*
  Return the full name of a per-object option: "-table_user_embedding_dim" if it was given; if not,
  "-tables_embedding_dim" if it was given; and if not, the first name, for which the getters find
  the default. All getters above accept the result. The string is borrowed until the next call with
  the same object and key.
*/
PetscErrorCode TrsOptionsObjectName(TrsOptions options, const char *object, const char *instance,
                                    const char *key, const char **name);

/*
  Check every given -<object>_<name>_<key> against the known names of objects. Not collective, but
  the result is the same on all ranks. Errors: OPTION, with the option and the closest known name or
  key.
*/
PetscErrorCode TrsOptionsCheckObjects(TrsOptions options, const char *object, int n,
                                      const char *const *names);

/*
  Return the source of an option, for messages: "run.opts:12", "command line", or "default" if the
  option was not given. The string is borrowed.
*/
PetscErrorCode TrsOptionsSource(TrsOptions options, const char *name, const char **source);

/*
  TrsOptionsTakeModel - Use the options of a checkpoint's model. The user's options override them.

  Not collective, but all ranks must pass the same text. Must be called before any option of a model
  is read.

  In:     text  the text that TrsOptionsModelText() wrote; it is modified. NULL if the file has
                none; messages about a model's options then say so
          path  path of the checkpoint, for messages
  Errors: OPTION for a given option that contradicts a fixed one, naming both; DATA for a text that
          does not consist of model options. From then on TrsOptionError() raises DATA for an option
          whose value comes from the checkpoint
*/
PetscErrorCode TrsOptionsTakeModel(TrsOptions options, const char *path, char *text);

/* True if the user gave the option with exactly this name. Not collective. */
PetscBool TrsOptionsIsGiven(TrsOptions options, const char *name);

/*
  TrsOptionsTry, TrsOptionsEndTry - Set an option to another value until the end of the trial, to
    find out the value's effect.

  Not collective. A trial may set many options, each with one call. For these options, pointers that
  getters returned before the trial stay valid. Pointers that they returned during the trial are
  invalid after the trial.

  In:  value  the new value; if NULL, the option is treated as not given
*/
PetscErrorCode TrsOptionsTry(TrsOptions options, const char *name, const char *value);
PetscErrorCode TrsOptionsEndTry(TrsOptions options);

/*
  Return the path of the checkpoint whose model gives this option's value, or NULL if the value does
  not come from a model. Borrowed.
*/
const char *TrsOptionsModelOf(TrsOptions options, const char *name);

/*
  Return, as text, the value of an object's key in the checkpoint's model, even if the user
  overrides it. NULL if there is no checkpoint. Borrowed. Not collective.
*/
const char *TrsOptionsModelValue(TrsOptions options, const char *object, const char *instance,
                                 const char *key);

/*
  Store a value that the run itself has determined for an option, so that TrsOptionsModelText()
  writes it even if the option was not given. Getters do not return it. Not collective.
*/
PetscErrorCode TrsOptionsSettle(TrsOptions options, const char *name, const char *value);

/*
  TrsOptionsModelText - Write the options that define the model as the text of an option file. Their
    values may be given, settled (TrsOptionsSettle()) or the defaults.

  Not collective. A checkpoint stores the text.

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
  Return the whole configuration as the text of an option file: the options in effect of the
  checkpoint's model, then the user's options in their order, then the defaults as comments. Free
  the text with PetscFree().
*/
PetscErrorCode TrsOptionsText(TrsOptions options, char **text);

/*
  Raise OPTION for a value in which only a module can find a mistake. The option's name and source
  precede the message.
*/
#define TrsOptionError(options, name, ...) \
  TrsOptionsRaise(options, name, PETSC_FUNCTION_NAME, __FILE__, __LINE__, __VA_ARGS__)
PetscErrorCode TrsOptionsRaise(TrsOptions options, const char *name, const char *function, const char *file,
                               int line, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(6, 7);
