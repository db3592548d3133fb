/* SPDX-License-Identifier: BSD-3-Clause */
/* What options.c and option_help.c share. */
#pragma once

#include "core/option_source.h"
#include "core/option_value.h"
#include "core/options.h"

/* One name that was given or asked for. */
typedef struct trs_option_entry {
  char *name;
  const TrsOptionSpec *spec;   /* NULL: PETSc's, or unknown */
  const TrsGivenOption *given; /* the one that counts; NULL: default */
  PetscBool parsed;            /* value is filled */
  TrsOptionValue value;
  struct trs_option_entry *next; /* in its bucket */
} TrsOptionEntry;

enum { TRS_OPTION_BUCKETS = 1 << 16 };

struct TrsOptionsImpl {
  const TrsOptionGroup **groups; /* [n_groups] core's own first */
  int n_groups;
  TrsGivenOptions given;
  TrsOptionEntry *bucket[TRS_OPTION_BUCKETS];
  PetscBool allow_unused;
};

/* The entry of a name (case is free), NULL when it was neither given nor asked for. Not collective. */
TrsOptionEntry *TrsOptionsFindEntry(TrsOptions options, const char *name);

/* The same, made if missing; spec NULL: find it in the tables. Not collective. Out: entry, owned by options */
PetscErrorCode TrsOptionsGetEntry(TrsOptions options, const char *name, const TrsOptionSpec *spec,
                                  TrsOptionEntry **entry);

/* The known name closest to a misspelt one; a per-object name keeps the object that it seems to have. text: [n]. Not collective. */
void TrsOptionsClosest(TrsOptions options, const char *wanted, char *text, size_t n);

/* An option nobody knows: OPTION with the reason, or with -allow_unused_options a warning of rank 0. Not collective. */
PetscErrorCode TrsOptionsRefuse(TrsOptions options, const TrsGivenOption *given, const char *what);
