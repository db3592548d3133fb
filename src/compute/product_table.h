/* SPDX-License-Identifier: BSD-3-Clause */
/*
  A table of algorithms for matrix products: which algorithm of a library computes a shape fastest,
  as an earlier run measured it. With a table, the algorithms are those of the fastest run, and the
  bits are the same in every run. input/FORMAT.md has the format of the file.
*/
#pragma once

#include "core/error.h"

#define TRS_PRODUCT_KEY 384 /* largest size of a key */

typedef struct {
  const char *key;   /* GPU, library and precision, as -log_view_products names them */
  const char *shape; /* shape of the product, with its types and epilogue */
  int algorithm;     /* number of the algorithm in the library's list, from 1 */
  int n;             /* length of this list */
  /* The library's numbers for the algorithm's tile, parts of k, and scheme that adds them. If the
     algorithm with this number has others, the entry does not hold. */
  int tile, split, scheme;
} TrsProductEntry;

typedef struct {
  int n;
  TrsProductEntry *entry; /* [n] */
  char *text;             /* memory of the strings */
} TrsProductTable;

/*
  Read a table from the text of its file. Not collective.

  Out:    table  free with TrsProductTableFree()
          line   number of the first line that is not as FORMAT.md says, from 1; 0 if all lines are.
                 Then the table is empty
          wrong  what is wrong with this line
  Errors: MEMORY
*/
PetscErrorCode TrsProductTableParse(const char *text, TrsProductTable *table, int *line, const char **wrong);

/* Find the entry of a shape; NULL: there is none. */
const TrsProductEntry *TrsProductTableFind(const TrsProductTable *table, const char *key, const char *shape);

/* True if the table has an entry for this key. */
PetscBool TrsProductTableHas(const TrsProductTable *table, const char *key);

PetscErrorCode TrsProductTableFree(TrsProductTable *table);
