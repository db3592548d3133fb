/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations shared by the option files (option*.c). */
#pragma once

#include "core/options/option_source.h"
#include "core/options/option_value.h"
#include "core/options/options.h"

/* One option name that was given or queried. */
typedef struct trs_option_entry {
  char *name;
  const TrsOptionSpec *spec;   /* NULL for PETSc's options and unknown options */
  const TrsGivenOption *given; /* the user's option, or NULL */
  const TrsGivenOption *model; /* the option of the checkpoint's model, or NULL */
  char *settled;               /* value of TrsOptionsSettle(), or NULL */
  PetscBool parsed;            /* true if `value` is filled */
  PetscBool was_read;          /* read since TrsOptionsForgetReads() */
  TrsOptionValue value;
  struct trs_option_entry *next; /* the next entry in the same bucket */
} TrsOptionEntry;

enum { TRS_OPTION_BUCKETS = 1 << 16 };

typedef struct TrsOptionTrial_ TrsOptionTrial;

struct TrsOptionsImpl {
  const TrsOptionGroup **groups; /* [n_groups] core's own group first */
  int n_groups;
  int rank; /* in the communicator of the options; rank 0 prints warnings */
  TrsGivenOptions given;
  TrsOptionEntry *bucket[TRS_OPTION_BUCKETS];
  PetscBool allow_unused;
  TrsGivenOptions model; /* options of the checkpoint's model; the user's options override them */
  char *checkpoint;      /* the file of the model, even if it has no options; NULL without a file */
  TrsOptionTrial *trial; /* the latest TrsOptionsTry(), or NULL */
};

/* The `origin` of a checkpoint model's options. */
enum { TRS_OPTION_ORIGIN_MODEL = -1 };

/* The option in effect: the user's, else the checkpoint model's, or NULL for the default. */
static inline const TrsGivenOption *TrsOptionCounted(const TrsOptionEntry *entry)
{
  return entry->given ? entry->given : entry->model;
}

/* True if the model's value is in effect. The user may have given another, also for all objects. */
PetscBool TrsOptionModelCounts(TrsOptions options, const TrsOptionEntry *entry);

/* True if this option is one that a checkpoint's model holds. Not collective. */
PetscBool TrsOptionIsOfModel(TrsOptions options, const TrsOptionSpec *spec);

/* A text that grows. Free data with PetscFree(). */
typedef struct {
  char *data;
  size_t used, capacity;
} TrsGrowingText;

PetscErrorCode TrsTextAdd(TrsGrowingText *text, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);

/*
  Add an option as in an option file: its name and, unless it is NULL, its value, each quoted if a
  bare word would be read differently.
*/
PetscErrorCode TrsTextAddOption(TrsGrowingText *text, const char *name, const char *value);

/*
  Parse the value of an entry from the given text. Errors: OPTION if it is not valid, DATA if it
  comes from a checkpoint.
*/
PetscErrorCode TrsOptionParse(const TrsOptionSpec *spec, const TrsGivenOption *given, TrsOptionValue *value);

/* Write an option's name for all objects, or its plain name: "-tables_pooling", "-interaction". */
void TrsOptionNameForAll(const TrsOptionGroup *group, const TrsOptionSpec *spec, char *name, size_t n);

/*
  The entry of a name, or NULL if the name was neither given nor queried. Case is ignored. Not
  collective.
*/
TrsOptionEntry *TrsOptionsFindEntry(TrsOptions options, const char *name);

/*
  The entry of a name; a missing entry is created. If spec is NULL, the tables are searched. Not
  collective. Out: entry, owned by options.
*/
PetscErrorCode TrsOptionsGetEntry(TrsOptions options, const char *name, const TrsOptionSpec *spec,
                                  TrsOptionEntry **entry);

/*
  The known name closest to a misspelt one; a per-object name keeps its apparent object. For another
  program's option name, the text has the option that replaces it here, and an explanation. text:
  [n]. Not collective.
*/
void TrsOptionsClosest(TrsOptions options, const char *wanted, char *text, size_t n);

/* The option that replaces a name of another program. Its spelling need not be the closest. */
typedef struct {
  const char *guess, *option;
  const char *more; /* explanation: words, or a sentence after ';'; may be empty */
} TrsOptionGuess;

/* The replacement of a name, or NULL. Not collective. */
const TrsOptionGuess *TrsOptionGuessOf(const char *name);

/*
  Refuse an unknown option: raise OPTION with the reason, or, with -allow_unused_options, print a
  warning on rank 0. Not collective.
*/
PetscErrorCode TrsOptionsRefuse(TrsOptions options, const TrsGivenOption *given, const char *what);
