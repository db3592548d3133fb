/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the files of the options share (option*.c). */
#pragma once

#include "core/options/option_source.h"
#include "core/options/option_value.h"
#include "core/options/options.h"

/* One name that was given or asked for. */
typedef struct trs_option_entry {
  char *name;
  const TrsOptionSpec *spec;   /* NULL for an option of PETSc and for an unknown one */
  const TrsGivenOption *given; /* what the user gave, or NULL */
  const TrsGivenOption *model; /* what the checkpoint's model says, or NULL */
  char *settled;               /* TrsOptionsSettle(), or NULL */
  PetscBool parsed;            /* whether value is filled */
  PetscBool was_read;          /* since TrsOptionsForgetReads() */
  TrsOptionValue value;
  struct trs_option_entry *next; /* the next entry in the same bucket */
} TrsOptionEntry;

enum { TRS_OPTION_BUCKETS = 1 << 16 };

typedef struct TrsOptionTrial_ TrsOptionTrial;

struct TrsOptionsImpl {
  const TrsOptionGroup **groups; /* [n_groups] core's own group first */
  int n_groups;
  int rank; /* of the communicator that the options were made for; rank 0 warns */
  TrsGivenOptions given;
  TrsOptionEntry *bucket[TRS_OPTION_BUCKETS];
  PetscBool allow_unused;
  TrsGivenOptions model; /* options of the checkpoint's model, below those of the user */
  char *checkpoint;      /* the file they come from or that has none; NULL without a file */
  TrsOptionTrial *trial; /* the newest of TrsOptionsTry(), or NULL */
};

/* The origin of options of a checkpoint's model. */
enum { TRS_OPTION_ORIGIN_MODEL = -1 };

/* What the user gave, else what the checkpoint's model says, or NULL for the default. */
static inline const TrsGivenOption *TrsOptionCounted(const TrsOptionEntry *entry)
{
  return entry->given ? entry->given : entry->model;
}

/* Does the value of the model count? The user may have given another one, also for all. */
PetscBool TrsOptionModelCounts(TrsOptions options, const TrsOptionEntry *entry);

/* Does a checkpoint's model hold this option? Not collective. */
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
  Parse the value of an entry from the given text. Errors: OPTION if it is not valid, DATA where it
  is of a checkpoint.
*/
PetscErrorCode TrsOptionParse(const TrsOptionSpec *spec, const TrsGivenOption *given, TrsOptionValue *value);

/* Write an option's name for all objects, or its plain name: "-tables_pooling", "-interaction". */
void TrsOptionNameForAll(const TrsOptionGroup *group, const TrsOptionSpec *spec, char *name, size_t n);

/*
  The entry of a name, or NULL if the name was neither given nor asked for. Case does not count. Not
  collective.
*/
TrsOptionEntry *TrsOptionsFindEntry(TrsOptions options, const char *name);

/*
  The entry of a name, which is created if it is missing. If spec is NULL, the tables are searched.
  Not collective. Out: entry, owned by options.
*/
PetscErrorCode TrsOptionsGetEntry(TrsOptions options, const char *name, const TrsOptionSpec *spec,
                                  TrsOptionEntry **entry);

/*
  The known name closest to a misspelt one; a per-object name keeps the object that it seems to
  have. A name that other programs have gives the option that stands for it here, with a word about
  it. text: [n]. Not collective.
*/
void TrsOptionsClosest(TrsOptions options, const char *wanted, char *text, size_t n);

/* The option that replaces a name of another program. It need not be the closest by its letters. */
typedef struct {
  const char *guess, *option;
  const char *more; /* explanation: words, or a sentence after ';'; may be empty */
} TrsOptionGuess;

/* The replacement of a name, or NULL. Not collective. */
const TrsOptionGuess *TrsOptionGuessOf(const char *name);

/*
  Refuse an unknown option: raise OPTION with the reason, or print a warning on rank 0 with
  -allow_unused_options. Not collective.
*/
PetscErrorCode TrsOptionsRefuse(TrsOptions options, const TrsGivenOption *given, const char *what);
