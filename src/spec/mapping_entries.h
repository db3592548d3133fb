/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The entries of a mapping (input/FORMAT.md, "Mapping"): how each dense feature and each sparse
  feature of a model comes from a raw column.
*/
#pragma once

#include "spec/mapping.h"

typedef enum { TRS_COLUMN_INTEGER, TRS_COLUMN_TEXT, TRS_COLUMN_ANY } TrsColumnKind;

/* An entry. The texts are owned. A field without a remark is for both kinds of features. */
typedef struct {
  char *name, *column;
  int place, width;        /* the value at `place` of the `width` values of a row */
  char *unit;              /* of times; NULL for other columns */
  PetscBool log1p;         /* dense */
  PetscBool missing_given; /* false: a missing dense value is refused; a missing id is left out */
  double missing;          /* dense: stands for a missing value if missing_given */
  int64_t missing_id;      /* sparse: the id of a missing value if missing_given */
  TrsColumnKind kind;      /* sparse, as all fields below */
  int base;                /* 10 or 16, of integers that are written as text */
  PetscBool bag;           /* a text has several ids with `separator` between them */
  char separator;
  int64_t rows; /* 0: ids may be any integers */
  PetscBool modulo;
  PetscBool unknown_given; /* ids outside of the rows become `unknown` */
  int64_t unknown;
  char *weights;            /* the column with the weights of the ids, or NULL */
  PetscBool has_vocabulary; /* the id of keys[i] is i + 1; all other values have id 0 */
  int64_t n_keys;
  int64_t *keys; /* [n_keys] integers, or the hashes (TrsMappingHash()) of words */
} TrsMappingEntry;

/* A column that a table may lack, and its value as text. The texts are owned. */
typedef struct {
  char *column, *value; /* value is NULL if it is missing */
} TrsMappingAbsent;

typedef struct {
  int n_dense, n_sparse, n_nulls, n_absent;
  TrsMappingEntry *dense, *sparse;
  char **nulls; /* [n_nulls] words that, like empty text, stand for a missing value */
  TrsMappingAbsent *absent;
} TrsMappingEntries;

/*
  TrsMappingEntriesRead - Read the entries of a model's features.

  Not collective.

  In:     mapping   must have a text
          dense     [n_dense] names of the dense features; NULL for all
          sparse    [n_sparse] names of the sparse features; NULL for all
  Out:    entries   in the order of the names. Free with TrsMappingEntriesFree(), also after an
                    error
  Errors: DATA if the text is not a mapping, if a key has a wrong value, or if the mapping does not
          say how a feature comes from a column
*/
PetscErrorCode TrsMappingEntriesRead(const TrsMapping *mapping, int n_dense, const char *const *dense,
                                     int n_sparse, const char *const *sparse, TrsMappingEntries *entries);
PetscErrorCode TrsMappingEntriesFree(TrsMappingEntries *entries);

/* Return the hash of a word, XXH64 with seed 0, as a signed integer. */
int64_t TrsMappingHash(const char *word, size_t n_bytes);

/* Return the value of a digit of base 16, in upper or lower case; -1 for other bytes. */
static inline int TrsHexDigit(char byte)
{
  const char lower = (char)(byte | 0x20);

  if (byte >= '0' && byte <= '9') return byte - '0';
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}
