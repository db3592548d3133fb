/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations shared by the option files (option*.c). */
#pragma once

#include "core/options/option_index.h"
#include "core/options/option_source.h"
#include "core/options/option_value.h"
#include "core/options/options.h"

/*
  An option name that the user or the model gave, or that a module queried. A name of one object
  that is only queried has no entry of its own, but the key's blank (TrsIndexedOption).
*/
typedef struct trs_option_entry {
  char *name;
  const TrsOptionSpec *spec;   /* NULL for options of PETSc and for unknown options */
  const TrsGivenOption *given; /* the user's option; NULL if not given */
  const TrsGivenOption *model; /* the option of the checkpoint's model; NULL if it has none */
  char *settled;               /* the value that TrsOptionsSettle() stored, or NULL */
  PetscBool parsed;            /* true if `value` is set */
  PetscBool was_read;          /* read since the last TrsOptionsForgetReads() */
  TrsOptionValue value;
  unsigned hash;                 /* TrsOptionHash() of the name */
  struct trs_option_entry *next; /* the next entry in the same bucket */
} TrsOptionEntry;

typedef struct TrsOptionTrial_ TrsOptionTrial;

struct TrsOptionsImpl {
  const TrsOptionGroup **groups; /* [n_groups] the groups; the first is the group of core */
  int n_groups;
  int rank; /* rank in the options' communicator; rank 0 prints warnings */
  TrsGivenOptions given;
  TrsOptionIndex index;     /* of the groups' tables */
  int n_entries, n_buckets; /* n_buckets: a power of two, at least n_entries */
  TrsOptionEntry **bucket;  /* [n_buckets] */
  TrsOptionEntry *blank;    /* the blank of the latest TrsOptionsObjectName(), or NULL */
  PetscBool allow_unused;
  TrsGivenOptions model; /* options of the checkpoint's model, which the user's options override */
  /* path of the checkpoint, even if it has no options of a model; NULL if there is no checkpoint */
  char *checkpoint;
  TrsOptionTrial *trial; /* the latest trial of TrsOptionsTry(), or NULL */
};

/* The `origin` of options that come from a checkpoint's model. */
enum { TRS_OPTION_ORIGIN_MODEL = -1 };

/*
  Return the option in effect: the user's, or if there is none, the checkpoint model's. NULL if the
  default is in effect.
*/
static inline const TrsGivenOption *TrsOptionCounted(const TrsOptionEntry *entry)
{
  return entry->given ? entry->given : entry->model;
}

/*
  True if the model's value is in effect. It is not if the user has given the option, for this
  object or for all objects.
*/
PetscBool TrsOptionModelCounts(TrsOptions options, const TrsOptionEntry *entry);

/* True if a checkpoint's model stores this option. Not collective. */
PetscBool TrsOptionIsOfModel(TrsOptions options, const TrsOptionSpec *spec);

/* A text that grows when text is added. Free data with PetscFree(). */
typedef struct {
  char *data;
  size_t used, capacity;
} TrsGrowingText;

PetscErrorCode TrsTextAdd(TrsGrowingText *text, const char *format, ...) PETSC_ATTRIBUTE_FORMAT(2, 3);

/*
  Add an option as in an option file: its name, and its value unless that is NULL. Both are quoted
  if the reader of option files would otherwise not read them back.
*/
PetscErrorCode TrsTextAddOption(TrsGrowingText *text, const char *name, const char *value);

/*
  Parse the text of an option's value. Errors: OPTION if it is not valid, DATA if it comes from a
  checkpoint.
*/
PetscErrorCode TrsOptionParse(const TrsOptionSpec *spec, const TrsGivenOption *given, TrsOptionValue *value);

/*
  Write the name with which an option holds for all objects, such as "-tables_pooling". For an
  option without objects, this is its name, such as "-interaction".
*/
void TrsOptionNameForAll(const TrsOptionGroup *group, const TrsOptionSpec *spec, char *name, size_t n);

/*
  Find the entry of a name. Returns NULL if the name was neither given nor queried. Case is ignored.
  If the name is a blank's, and not just equal to it, the result is the blank. Not collective.
*/
TrsOptionEntry *TrsOptionsFindEntry(TrsOptions options, const char *name);

/*
  Find the entry of a name, or create it. The result is never a blank. If spec is NULL, it is the
  blank's for a blank's name, otherwise the option is searched in the tables. Not collective. Out:
  entry, owned by options.
*/
PetscErrorCode TrsOptionsGetEntry(TrsOptions options, const char *name, const TrsOptionSpec *spec,
                                  TrsOptionEntry **entry);

/*
  Write the known name that is closest to a misspelt name to text [n]. If the name seems to contain
  an object's name, the object stays. If another program has an option of this name, the text has
  the option that replaces it here, and an explanation. Not collective.
*/
void TrsOptionsClosest(TrsOptions options, const char *wanted, char *text, size_t n);

/* The option that replaces an option of another program. Its name may be quite different. */
typedef struct {
  const char *guess, *option;
  const char *more; /* explanation: words, or a sentence after ';'; may be empty */
} TrsOptionGuess;

/* Find the option that replaces another program's option `name`, or NULL. Not collective. */
const TrsOptionGuess *TrsOptionGuessOf(const char *name);

/*
  Refuse an unknown option: raise OPTION with the reason. If -allow_unused_options is given, only
  print a warning on rank 0. Not collective.
*/
PetscErrorCode TrsOptionsRefuse(TrsOptions options, const TrsGivenOption *given, const char *what);
