/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that options.c, option_table.c and option_help.c share. */
#pragma once

#include "core/option_source.h"
#include "core/option_value.h"
#include "core/options.h"

/* One name that was given or asked for. */
typedef struct trs_option_entry {
  char *name;
  const TrsOptionSpec *spec;   /* NULL for an option of PETSc and for an unknown one */
  const TrsGivenOption *given; /* the given option that counts, or NULL for the default */
  PetscBool parsed;            /* whether value is filled */
  TrsOptionValue value;
  struct trs_option_entry *next; /* the next entry in the same bucket */
} TrsOptionEntry;

enum { TRS_OPTION_BUCKETS = 1 << 16 };

struct TrsOptionsImpl {
  const TrsOptionGroup **groups; /* [n_groups] core's own group first */
  int n_groups;
  TrsGivenOptions given;
  TrsOptionEntry *bucket[TRS_OPTION_BUCKETS];
  PetscBool allow_unused;
};

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
