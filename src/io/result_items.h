/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Declarations shared by the code that writes results and the code that reads them. Internal to io/.
*/
#pragma once

#include "io/column.h"
#include "io/hdf5_util.h"
#include "io/results.h"

/* An item is a column, an array, or a root attribute. The first three kinds are columns. */
typedef enum {
  TRS_ITEM_REAL,
  TRS_ITEM_INT,
  TRS_ITEM_TEXT,
  TRS_ITEM_ARRAY_REAL,
  TRS_ITEM_ARRAY_FLOAT,
  TRS_ITEM_ARRAY_INT,
  TRS_ITEM_ATTRIBUTE_TEXT,
  TRS_ITEM_ATTRIBUTE_INT
} TrsItemKind;

typedef struct {
  char *name;
  TrsItemKind kind;
  TrsColumn column; /* used by columns of numbers */
  char **text;      /* [rows] used by a column of texts */
  int64_t rows;     /* used by texts and arrays */
  int64_t cols;     /* used by arrays and columns of numbers; 0 if there is one dimension */
  int64_t n_bytes;  /* used by arrays and attributes */
  TrsBuffer data;   /* values of arrays and attributes */
  /* file with the values of an array of rows; fd is -1 if the values are in memory */
  TrsSpill file;
  int64_t file_row_bytes; /* bytes of a row in this file */
  /*
    While the file is written: file offset of the space reserved for the numbers, or -1 if there is
    none.
  */
  int64_t offset;
} TrsItem;

/* A group whose first rows were loaded from an earlier part of the run. */
typedef struct {
  char *prefix; /* the group's path, for example "train/" */
  int64_t rows; /* number of loaded rows that still exist */
} TrsLoadedGroup;

struct TrsResultsImpl {
  MPI_Comm comm;
  int rank, size;
  char *path;        /* if NULL, nothing is collected */
  TrsOutput *output; /* if NULL, an existing file is replaced */
  TrsSpill spill;
  int n, capacity;
  TrsItem *items; /* [n] used on rank 0 */
  int n_loaded;
  TrsLoadedGroup *loaded; /* [n_loaded] */
  TrsBuffer gathered;
};

/*
  Append one row, even if other columns of the group have fewer rows. If the column has rows of
  another width, they become NaN.

  In:  cols   numbers per row of a matrix, at most TRS_COLUMN_BLOCK_ROWS; 0 for a plain column
       value  8 bytes for each number, or the text
*/
PetscErrorCode TrsResultsAppendAny(TrsResults results, const char *path, TrsItemKind kind, int64_t cols,
                                   const void *value);

/* Return the number of rows in a column. */
int64_t TrsItemRows(const TrsItem *it);

/*
  Extend columns that an earlier part of the run began, so that all columns of a group have the same
  number of rows.
*/
PetscErrorCode TrsResultsEven(TrsResults results);

/*
  Make the HDF5 type for texts of variable length, which h5py also uses. Close it with H5Tclose().
  Call this under the lock.
*/
PetscErrorCode TrsResultsTextType(hid_t *type);
