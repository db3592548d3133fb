/* SPDX-License-Identifier: BSD-3-Clause */
/*
  An index of the option tables. It finds an option by its name, and a key of a group of per-object
  options, without a search of the tables. With thousands of tables, a run looks up a million names.
*/
#pragma once

#include "core/options/options.h"

struct trs_option_entry;

/* An option of the tables. */
typedef struct {
  const TrsOptionSpec *spec;   /* NULL: this slot is free */
  const TrsOptionGroup *group; /* the group of a key; NULL for an option without objects */
  unsigned hash;               /* TrsOptionHash() of the spec's name */
  char *name_for_all;          /* a key's name for all objects, "-tables_pooling" */
  unsigned hash_for_all;
  /*
    A key's entry for all objects that have no value from the user or the model. It has the default,
    which is the same for all of them, and the name of the latest of these objects. NULL until it is
    needed.
  */
  struct trs_option_entry *blank;
  size_t blank_room; /* bytes of the blank's name */
} TrsIndexedOption;

typedef struct {
  int capacity; /* number of slots, a power of two */
  TrsIndexedOption *slot;
} TrsOptionIndex;

/* The hash of a name. Names that differ only in case have the same hash. Not collective. */
unsigned TrsOptionHash(const char *name);

/*
  Make the index of the tables. If two options of a group, or two options without objects, have the
  same name, the index has the first. Not collective. Free with TrsOptionIndexFree().
*/
PetscErrorCode TrsOptionIndexCreate(int n_groups, const TrsOptionGroup *const *groups, TrsOptionIndex *index);

/* Free the index. The caller must have freed the blanks' contents. */
PetscErrorCode TrsOptionIndexFree(TrsOptionIndex *index);

/*
  Find a key of a group, or with a NULL group the option without objects of this name. Case is
  ignored. Returns NULL if there is none. Not collective.
*/
TrsIndexedOption *TrsOptionIndexFind(const TrsOptionIndex *index, const TrsOptionGroup *group,
                                     const char *name);
